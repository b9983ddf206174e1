// The tables of the ops that a fused product serves on CUDA: where it pays, and variants, taken
// where they are preferred alone.
#include <array>

#include "ops/linear/fused.h"
#include "ops/linear/gemv.h"
#include "ops/linear/resident.h"

namespace headrace {
namespace {

using Fits = bool (*)(const DeviceTraits&, const FusedLinearArgs&);
using Run = void (*)(OpContext&, const FusedLinearArgs&);

template <class Args>
bool can_be_fused(const Args&) {
  return true;
}
bool can_be_fused(const ResidualLinearArgs& args) { return args.scale == 1.0f; }

template <class Args, Fits kFits>
bool fits(const DeviceTraits& traits, const Args& args) {
  return can_be_fused(args) && kFits(traits, fused(args));
}
template <class Args, Run kRun>
void run(OpContext& context, const Args& args) {
  kRun(context, fused(args));
}
template <class Args, Fits kFits, Run kRun>
constexpr Kernel<Args> kernel(std::string_view name) {
  return {name, fits<Args, kFits>, run<Args, kRun>};
}

constexpr std::array kNormLinear = {
    kernel<NormLinearArgs, resident_pays, run_resident>("norm_linear/cuda/resident"),
    kernel<NormLinearArgs, gemv_pays, run_gemv>("norm_linear/cuda/gemv")};
constexpr std::array kNormLinearVariants = {
    kernel<NormLinearArgs, resident_fits, run_resident>("norm_linear/cuda/resident_any_rows"),
    kernel<NormLinearArgs, gemv_fits, run_gemv>("norm_linear/cuda/gemv_any_size")};

constexpr std::array kNormGatedLinear = {
    kernel<NormGatedLinearArgs, resident_pays, run_resident>("norm_gated_linear/cuda/resident"),
    kernel<NormGatedLinearArgs, gemv_pays, run_gemv>("norm_gated_linear/cuda/gemv")};
constexpr std::array kNormGatedLinearVariants = {
    kernel<NormGatedLinearArgs, resident_fits, run_resident>(
        "norm_gated_linear/cuda/resident_any_rows"),
    kernel<NormGatedLinearArgs, gemv_fits, run_gemv>("norm_gated_linear/cuda/gemv_any_size")};

constexpr std::array kResidualLinear = {
    kernel<ResidualLinearArgs, resident_pays, run_resident>("residual_linear/cuda/resident"),
    kernel<ResidualLinearArgs, gemv_pays, run_gemv>("residual_linear/cuda/gemv")};
constexpr std::array kResidualLinearVariants = {
    kernel<ResidualLinearArgs, gemv_fits, run_gemv>("residual_linear/cuda/gemv_any_size")};

}  // namespace

std::span<const Kernel<NormLinearArgs>> norm_linear_cuda_kernels() { return kNormLinear; }
std::span<const Kernel<NormLinearArgs>> norm_linear_cuda_variants() { return kNormLinearVariants; }
std::span<const Kernel<NormGatedLinearArgs>> norm_gated_linear_cuda_kernels() {
  return kNormGatedLinear;
}
std::span<const Kernel<NormGatedLinearArgs>> norm_gated_linear_cuda_variants() {
  return kNormGatedLinearVariants;
}
std::span<const Kernel<ResidualLinearArgs>> residual_linear_cuda_kernels() {
  return kResidualLinear;
}
std::span<const Kernel<ResidualLinearArgs>> residual_linear_cuda_variants() {
  return kResidualLinearVariants;
}

}  // namespace headrace
