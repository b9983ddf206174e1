// The tables on CUDA of linear, and of the ops that are a product with what stands before or after
// it.
#include <array>

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_gemv.h"
#include "ops/linear/blocks_tiles.h"
#include "ops/linear/blocks_wide.h"
#include "ops/linear/exact.h"
#include "ops/linear/float8.h"
#include "ops/linear/fused.h"
#include "ops/linear/gemv.h"
#include "ops/linear/plain.h"
#include "ops/linear/resident.h"
#include "ops/linear/stream.h"
#include "ops/linear/wgmma.h"

namespace headrace {
namespace {

// --- kernels that serve several ops (resident.h, gemv.h) ---

using Fits = bool (*)(const DeviceTraits&, const FusedLinearArgs&);
using Run = void (*)(OpContext&, const FusedLinearArgs&);

template <class Args>
bool can_be_fused(const Args&) {
  return true;
}
bool can_be_fused(const ResidualLinearArgs& args) { return args.scale == 1.0f; }
// What multiplies a gate is what the product has, and gpu::activated() has the activation.
bool can_be_fused(const GatedLinearArgs& args) {
  return args.activation != Activation::kClampedSwish && args.activation != Activation::kTanh &&
         args.activation != Activation::kSigmoid;
}
bool can_be_fused(const NormGatedLinearArgs& args) { return can_be_fused(args.gated); }

template <class Args, Fits kFits>
bool fits(const DeviceTraits& traits, const Args& args) {
  return can_be_fused(args) && kFits(traits, fused(args));
}
template <class Args, Run kRun>
void run(OpContext& context, const Args& args) {
  kRun(context, fused(args));
}
template <class Args, Fits kFits, Run kRun>
constexpr Kernel<Args> kernel(std::string_view name, Selection selection = Selection::kBest) {
  return {name, fits<Args, kFits>, run<Args, kRun>, selection};
}

// --- linear ---

// Measured inside a step on an H200 (docs/kernels/notebook/linear.md), where a product stands
// between small kernels: with fewer rows, more rows, or larger or much smaller weights (a 135M
// model's), the library is ahead.
constexpr int kStreamedRowsMin = 5, kStreamedRowsMax = 64;
constexpr int64_t kStreamedElementsMin = 2048 * 2048, kStreamedElementsMax = 4096 * 4096;

bool linear_stream_fits(const DeviceTraits& traits, const LinearArgs& args) {
  return stream_fits(traits, {.linear = args});
}
bool stream_pays(const DeviceTraits& traits, const LinearArgs& args) {
  if (!linear_stream_fits(traits, args)) return false;
  if (args.weight->is_matrix_of(DType::kF8)) {
    return float8_streams(traits, args.x.rows());
  }
  const int64_t rows = args.x.rows(), elements = args.weight->n() * args.weight->k();
  return traits.batch_invariant ||
         (rows >= kStreamedRowsMin && rows <= kStreamedRowsMax &&
          elements >= kStreamedElementsMin && elements <= kStreamedElementsMax);
}
void run_linear_stream(OpContext& context, const LinearArgs& args) {
  run_stream(context, {.linear = args});
}

constexpr std::array kLinear = {
    kernel<LinearArgs, gemv_pays, run_gemv>("linear/cuda/gemv"),
    Kernel<LinearArgs>{"linear/cuda/stream", stream_pays, run_linear_stream},
    Kernel<LinearArgs>{"linear/cuda/few_rows", few_rows_pays, run_few_rows},
    Kernel<LinearArgs>{"linear/cuda/library", linear_library_fits, run_linear_library},
    Kernel<LinearArgs>{"linear/cuda/float8_library", float8_library_fits, run_float8_library},
    Kernel<LinearArgs>{"linear/cuda/stream_any_size", linear_stream_fits, run_linear_stream,
                       Selection::kByName},
    Kernel<LinearArgs>{"linear/cuda/exact_few", exact_few_fits, run_exact_few},
    Kernel<LinearArgs>{"linear/cuda/exact", exact_fits, run_exact},
    Kernel<LinearArgs>{"linear/cuda/exact_any", exact_any_fits, run_exact_any},
    Kernel<LinearArgs>{"linear/cuda/blocks_tiles", blocks_tiles_pay, run_blocks_tiles},
    Kernel<LinearArgs>{"linear/cuda/blocks_wide", blocks_wide_pay, run_blocks_wide},
    kernel<LinearArgs, blocks_gemv_pays, run_blocks_gemv>("linear/cuda/blocks_gemv"),
    Kernel<LinearArgs>{"linear/cuda/blocks", blocks_pay, run_blocks},
    Kernel<LinearArgs>{"linear/cuda/unpacked", unpacked_fits, run_unpacked},
    Kernel<LinearArgs>{"linear/cuda/blocks_any_rows", blocks_fit, run_blocks, Selection::kByName},
    kernel<LinearArgs, blocks_gemv_fits, run_blocks_gemv>("linear/cuda/blocks_gemv_any_size",
                                                          Selection::kByName),
    Kernel<LinearArgs>{"linear/cuda/blocks_tiles_any_rows", blocks_tiles_fit, run_blocks_tiles,
                       Selection::kByName},
    Kernel<LinearArgs>{"linear/cuda/blocks_wide_any_rows", blocks_wide_fit, run_blocks_wide,
                       Selection::kByName},
    kernel<LinearArgs, resident_fits, run_resident>("linear/cuda/resident", Selection::kByName),
    kernel<LinearArgs, gemv_fits, run_gemv>("linear/cuda/gemv_any_size", Selection::kByName),
    Kernel<LinearArgs>{.name = "linear/cuda/any",
                       .supports = linear_any_fits,
                       .run = run_linear_any,
                       .is_fallback = true}};

// --- gated_linear ---

StreamArgs stream_args(const GatedLinearArgs& args) {
  return {.linear = {.x = args.x, .weight = args.weight, .bias = args.bias, .y = args.y},
          .gate = &args.activation};
}
// Alone it is as fast as the library's product without the activation; inside a step the two of
// them are ahead (docs/kernels/notebook/linear.md).
bool gated_stream_pays(const DeviceTraits& traits, const GatedLinearArgs& args) {
  return traits.batch_invariant && can_be_fused(args) && stream_fits(traits, stream_args(args));
}
void run_gated_stream(OpContext& context, const GatedLinearArgs& args) {
  run_stream(context, stream_args(args));
}

// Tiles of many rows, without an activation of its own.
WgmmaArgs wgmma_args(const GatedLinearArgs& args) {
  return {.x = args.x,
          .weight = args.weight,
          .bias = args.bias,
          .activation = args.activation,
          .y = args.y};
}
bool gated_wgmma_fits(const DeviceTraits& traits, const GatedLinearArgs& args) {
  return wgmma_fits(traits, wgmma_args(args));
}
// Measured on an H200 beside the library and an activation: ahead where few products are dropped,
// not between 257 and some 700 rows.
bool gated_wgmma_pays(const DeviceTraits& traits, const GatedLinearArgs& args) {
  if (!gated_wgmma_fits(traits, args)) return false;
  const int64_t m = args.x.rows();
  const double filled = plan_wgmma(m, args.weight->n(), traits.sm_count).filled;
  return m <= kWgmmaRowsMin ? filled > 0.8 : m >= 768 && filled > 0.93;
}
void run_gated_wgmma(OpContext& context, const GatedLinearArgs& args) {
  run_wgmma(context, wgmma_args(args));
}

constexpr std::array kGatedLinear = {
    kernel<GatedLinearArgs, gemv_pays, run_gemv>("gated_linear/cuda/gemv"),
    kernel<GatedLinearArgs, fused_blocks_gemv_pays, run_blocks_gemv>(
        "gated_linear/cuda/blocks_gemv"),
    Kernel<GatedLinearArgs>{"gated_linear/cuda/stream", gated_stream_pays, run_gated_stream},
    Kernel<GatedLinearArgs>{"gated_linear/cuda/wgmma", gated_wgmma_pays, run_gated_wgmma},
    Kernel<GatedLinearArgs>{"gated_linear/cuda/wgmma_any_rows", gated_wgmma_fits, run_gated_wgmma,
                            Selection::kByName},
    kernel<GatedLinearArgs, resident_fits, run_resident>("gated_linear/cuda/resident",
                                                         Selection::kByName),
    kernel<GatedLinearArgs, gemv_fits, run_gemv>("gated_linear/cuda/gemv_any_size",
                                                 Selection::kByName),
    kernel<GatedLinearArgs, blocks_gemv_fits, run_blocks_gemv>(
        "gated_linear/cuda/blocks_gemv_any_size", Selection::kByName)};

// --- the others ---

constexpr std::array kNormLinear = {
    kernel<NormLinearArgs, resident_pays, run_resident>("norm_linear/cuda/resident"),
    kernel<NormLinearArgs, gemv_pays, run_gemv>("norm_linear/cuda/gemv"),
    kernel<NormLinearArgs, fused_blocks_gemv_pays, run_blocks_gemv>("norm_linear/cuda/blocks_gemv"),
    Kernel<NormLinearArgs>{"norm_linear/cuda/float8", norm_float8_fits, run_norm_float8},
    Kernel<NormLinearArgs>{"norm_linear/cuda/blocks_wide", norm_blocks_wide_fit,
                           run_norm_blocks_wide},
    Kernel<NormLinearArgs>{"norm_linear/cuda/blocks_tiles", norm_blocks_tiles_fit,
                           run_norm_blocks_tiles},
    kernel<NormLinearArgs, resident_fits, run_resident>("norm_linear/cuda/resident_any_rows",
                                                        Selection::kByName),
    kernel<NormLinearArgs, gemv_fits, run_gemv>("norm_linear/cuda/gemv_any_size",
                                                Selection::kByName),
    kernel<NormLinearArgs, blocks_gemv_fits, run_blocks_gemv>(
        "norm_linear/cuda/blocks_gemv_any_size", Selection::kByName)};

constexpr std::array kNormGatedLinear = {
    kernel<NormGatedLinearArgs, resident_pays, run_resident>("norm_gated_linear/cuda/resident"),
    kernel<NormGatedLinearArgs, gemv_pays, run_gemv>("norm_gated_linear/cuda/gemv"),
    kernel<NormGatedLinearArgs, fused_blocks_gemv_pays, run_blocks_gemv>(
        "norm_gated_linear/cuda/blocks_gemv"),
    Kernel<NormGatedLinearArgs>{"norm_gated_linear/cuda/float8", norm_gated_float8_fits,
                                run_norm_gated_float8},
    Kernel<NormGatedLinearArgs>{"norm_gated_linear/cuda/blocks_wide", norm_gated_blocks_wide_fit,
                                run_norm_gated_blocks_wide},
    Kernel<NormGatedLinearArgs>{"norm_gated_linear/cuda/blocks_tiles", norm_gated_blocks_tiles_fit,
                                run_norm_gated_blocks_tiles},
    kernel<NormGatedLinearArgs, resident_fits, run_resident>(
        "norm_gated_linear/cuda/resident_any_rows", Selection::kByName),
    kernel<NormGatedLinearArgs, gemv_fits, run_gemv>("norm_gated_linear/cuda/gemv_any_size",
                                                     Selection::kByName),
    kernel<NormGatedLinearArgs, blocks_gemv_fits, run_blocks_gemv>(
        "norm_gated_linear/cuda/blocks_gemv_any_size", Selection::kByName)};

constexpr std::array kActivatedLinear = {
    Kernel<ActivatedLinearArgs>{"activated_linear/cuda/float8", activated_float8_fits,
                                run_activated_float8},
    Kernel<ActivatedLinearArgs>{"activated_linear/cuda/blocks_wide", activated_blocks_wide_fit,
                                run_activated_blocks_wide},
    Kernel<ActivatedLinearArgs>{"activated_linear/cuda/blocks_tiles", activated_blocks_tiles_fit,
                                run_activated_blocks_tiles}};

constexpr std::array kResidualLinear = {
    kernel<ResidualLinearArgs, resident_pays, run_resident>("residual_linear/cuda/resident"),
    kernel<ResidualLinearArgs, gemv_pays, run_gemv>("residual_linear/cuda/gemv"),
    kernel<ResidualLinearArgs, fused_blocks_gemv_pays, run_blocks_gemv>(
        "residual_linear/cuda/blocks_gemv"),
    kernel<ResidualLinearArgs, gemv_fits, run_gemv>("residual_linear/cuda/gemv_any_size",
                                                    Selection::kByName),
    kernel<ResidualLinearArgs, blocks_gemv_fits, run_blocks_gemv>(
        "residual_linear/cuda/blocks_gemv_any_size", Selection::kByName)};

}  // namespace

KernelTable<ActivatedLinearArgs> activated_linear_cuda_kernels() { return kActivatedLinear; }
KernelTable<LinearArgs> linear_cuda_kernels() { return kLinear; }
KernelTable<GatedLinearArgs> gated_linear_cuda_kernels() { return kGatedLinear; }
KernelTable<NormLinearArgs> norm_linear_cuda_kernels() { return kNormLinear; }
KernelTable<NormGatedLinearArgs> norm_gated_linear_cuda_kernels() { return kNormGatedLinear; }
KernelTable<ResidualLinearArgs> residual_linear_cuda_kernels() { return kResidualLinear; }

}  // namespace headrace
