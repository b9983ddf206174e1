#include "ops/linear/gemv.cuh"

#include "ops/linear/gemv.h"

namespace headrace {
namespace {

using gpu::GemvArguments;
using gpu::GemvShape;

// Of the smallest matrix of those measured on an H200 (docs/kernels/notebook/linear.md), of models
// of 1B, 3B and 8B: fewer rows leave multiprocessors without any.
constexpr int64_t kRowsThatPay = 2048;
constexpr int64_t kElementsThatPay = kRowsThatPay * 2048;

template <class T, class W>
GemvArguments<T, W> arguments_of(const FusedLinearArgs& args, const GemvPlan& plan) {
  const bool gated = args.gate != nullptr;
  return {.x = gpu::rows_of<T>(args.x),
          .weight = gpu::rows_of<W>(args.weight->matrix()),
          .y = args.y.data,
          .y_stride = args.y.row_stride / dtype_info(args.y.dtype).block_bytes,
          .norm = args.norm == nullptr ? nullptr : args.norm->weight,
          .bias = args.bias,
          .scales = args.weight->row_scales(),
          .eps = args.norm == nullptr ? 0.0f : args.norm->eps,
          .m = static_cast<int32_t>(args.x.rows()),
          .k = static_cast<int32_t>(args.weight->k()),
          .n_out = static_cast<int32_t>(args.y.columns()),
          .share = plan.tiles / plan.blocks,
          .blocks_with_more = plan.tiles % plan.blocks,
          .round_tiles = plan.round_tiles,
          .windows = plan.windows,
          .window_steps = plan.window_steps,
          .activation = gated ? *args.gate : Activation::kSilu,
          .gated = gated,
          .accumulates = args.output == LinearOutput::kAccumulate,
          .y_is_float = args.y.dtype == DType::kF32};
}

template <class T, class W, class Shape>
void launch(OpContext& context, const FusedLinearArgs& args, const GemvPlan& plan) {
  // Without the carveout the kernel before might run where too little shared memory is set aside
  // for this one to start beside it.
  const gpu::LaunchShape launched{.blocks = static_cast<unsigned>(plan.blocks),
                                  .threads = kGemvThreads,
                                  .shared_bytes = plan.shared_bytes,
                                  .carveout = gpu::Carveout::kAllShared};
  gpu::check_launch(context.stream, gpu::launch_overlapped(gpu::linear_gemv<T, W, Shape>, launched,
                                                           gpu::stream_of(context),
                                                           arguments_of<T, W>(args, plan)));
}

template <class T, class W, int kAhead>
void launch_rows(OpContext& context, const FusedLinearArgs& args, const GemvPlan& plan) {
  const bool few = args.x.rows() <= kGemvXRows;
  if (args.norm == nullptr) {
    if (few) return launch<T, W, GemvShape<kAhead, 1, false>>(context, args, plan);
    return launch<T, W, GemvShape<kAhead, 2, false>>(context, args, plan);
  }
  if (few) return launch<T, W, GemvShape<kAhead, 1, true>>(context, args, plan);
  launch<T, W, GemvShape<kAhead, 2, true>>(context, args, plan);
}

template <class T, class W>
void launch_plan(OpContext& context, const FusedLinearArgs& args) {
  const GemvPlan plan = plan_gemv(product_of(args), context.device.traits().sm_count);
  if (plan.ahead == kGemvDeep) return launch_rows<T, W, kGemvDeep>(context, args, plan);
  CHECK(plan.ahead == kGemvShallow);
  launch_rows<T, W, kGemvShallow>(context, args, plan);
}

bool norm_fits(const FusedLinearArgs& args) {
  return args.norm == nullptr ||
         (args.norm->residual.data == nullptr && gpu::multiple_of_access(args.norm->weight));
}

}  // namespace

bool gemv_fits(const DeviceTraits& traits, const FusedLinearArgs& args) {
  if (traits.kind != DeviceKind::kCuda) return false;
  const DType dtype = args.x.dtype;
  const bool floats = dtype == DType::kBF16 || dtype == DType::kF16;
  const bool eight_bits = args.weight->is_matrix_of(DType::kF8);
  const int columns = gemv_columns(eight_bits ? 1 : 2);
  return traits.compute_capability == 90 && !traits.batch_invariant && floats &&
         (eight_bits || args.weight->is_matrix_of(dtype)) &&
         (args.y.dtype == dtype || args.y.dtype == DType::kF32) && args.x.rows() <= kGemvRowsMax &&
         args.x.columns() % columns == 0 && args.x.columns() >= int64_t{kGemvWarps} * columns &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.weight->matrix()) &&
         args.weight->n() <= INT32_MAX && norm_fits(args) &&
         plan_gemv(product_of(args), traits.sm_count).blocks > 0;
}

bool gemv_pays(const DeviceTraits& traits, const FusedLinearArgs& args) {
  if (!gemv_fits(traits, args)) return false;
  const LinearWeight& weight = *args.weight;
  // Of FP8, `stream` is ahead with a second product of the same registers.
  if (weight.is_matrix_of(DType::kF8)) return args.x.rows() <= kGemvXRows;
  return weight.n() >= kRowsThatPay && weight.n() * weight.k() >= kElementsThatPay;
}

void run_gemv(OpContext& context, const FusedLinearArgs& args) {
  const bool eight_bits = args.weight->is_matrix_of(DType::kF8);
  if (args.x.dtype == DType::kF16) {
    return eight_bits ? launch_plan<__half, uint8_t>(context, args)
                      : launch_plan<__half, __half>(context, args);
  }
  eight_bits ? launch_plan<__nv_bfloat16, uint8_t>(context, args)
             : launch_plan<__nv_bfloat16, __nv_bfloat16>(context, args);
}

}  // namespace headrace
