#include "ops/linear/norm_linear.h"

namespace headrace {
namespace {

template <class Args>
bool any(const DeviceTraits&, const Args&) {
  return true;
}

void run_norm_then_linear(OpContext& context, const NormLinearArgs& args) {
  rms_norm(context, args.norm);
  linear(context, args.linear);
}
void run_norm_then_gated_linear(OpContext& context, const NormGatedLinearArgs& args) {
  rms_norm(context, args.norm);
  gated_linear(context, args.gated);
}

constexpr Kernel<NormLinearArgs> kNormLinearTwoOps[] = {
    {"norm_linear/two_ops", any<NormLinearArgs>, run_norm_then_linear}};
constexpr Kernel<NormGatedLinearArgs> kTwoGatedOps[] = {
    {"norm_gated_linear/two_ops", any<NormGatedLinearArgs>, run_norm_then_gated_linear}};

void check_input(const RmsNormArgs& norm, const ConstTensorView& x) {
  CHECK(norm.weight != nullptr && norm.out.data != nullptr);
  CHECK(x.data == norm.out.data && x.shape == norm.out.shape && x.dtype == norm.out.dtype);
  CHECK(norm.x.shape == x.shape && norm.x.dtype == x.dtype);
}

template <class Args>
void run_choice(OpContext& context, const KernelSet<Args>& kernels, const Args& args) {
  const Kernel<Args>& kernel = choose_kernel(context, kernels, args);
  kernel.run(context, args);
}

}  // namespace

const KernelSet<NormLinearArgs>& norm_linear_kernels() {
  static const KernelSet<NormLinearArgs> set({norm_linear_cuda_kernels(), kNormLinearTwoOps});
  return set;
}

const KernelSet<NormGatedLinearArgs>& norm_gated_linear_kernels() {
  static const KernelSet<NormGatedLinearArgs> set({norm_gated_linear_cuda_kernels(), kTwoGatedOps});
  return set;
}

void norm_linear(OpContext& context, const NormLinearArgs& args) {
  check_input(args.norm, args.linear.x);
  if (args.norm.x.rows() == 0) return;
  run_choice(context, norm_linear_kernels(), args);
}

void norm_gated_linear(OpContext& context, const NormGatedLinearArgs& args) {
  check_input(args.norm, args.gated.x);
  if (args.norm.x.rows() == 0) return;
  run_choice(context, norm_gated_linear_kernels(), args);
}

}  // namespace headrace
