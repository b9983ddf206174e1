#include "ops/linear/residual_linear.h"

namespace headrace {
namespace {

bool any(const DeviceTraits&, const ResidualLinearArgs&) { return true; }
LinearArgs later(const ResidualLinearArgs& args) {
  return {.x = args.in, .weight = args.weight, .bias = args.bias, .y = args.branch};
}
void run_later(OpContext& context, const ResidualLinearArgs& args) { linear(context, later(args)); }

bool unscaled(const DeviceTraits&, const ResidualLinearArgs& args) { return args.scale == 1.0f; }
// Where it is ahead on an H200: 0.3 to 0.6 % of an 8B model's prompts. At 128 and 256 rows it was
// ahead on one machine and behind on another, at 64 behind.
bool many_rows(const DeviceTraits& traits, const ResidualLinearArgs& args) {
  constexpr int64_t kRowsMin = 512;
  return traits.kind == DeviceKind::kCuda && !traits.batch_invariant &&
         args.in.rows() >= kRowsMin && unscaled(traits, args);
}
LinearArgs accumulated(const ResidualLinearArgs& args) {
  return {.x = args.in,
          .weight = args.weight,
          .bias = args.bias,
          .y = args.x,
          .output = LinearOutput::kAccumulate};
}
void run_accumulated(OpContext& context, const ResidualLinearArgs& args) {
  linear(context, accumulated(args));
}

constexpr Kernel<ResidualLinearArgs> kResidualLinearKernels[] = {
    {"residual_linear/accumulated", many_rows, run_accumulated},
    {"residual_linear/later", any, run_later},
    {"residual_linear/accumulated_any_rows", unscaled, run_accumulated, Selection::kByName}};

}  // namespace

const KernelSet<ResidualLinearArgs>& residual_linear_kernels() {
  static const KernelSet<ResidualLinearArgs> set(
      {residual_linear_cuda_kernels(), kResidualLinearKernels});
  return set;
}

LinearArgs residual_product(const DeviceTraits& traits, const ResidualLinearArgs& args) {
  return many_rows(traits, args) ? accumulated(args) : later(args);
}

bool residual_linear(OpContext& context, const ResidualLinearArgs& args) {
  CHECK(args.x.shape == args.branch.shape && args.x.dtype == args.branch.dtype);
  const KernelSet<ResidualLinearArgs>& kernels = residual_linear_kernels();
  const Kernel<ResidualLinearArgs>& kernel = choose_kernel(context, kernels, args);
  if (args.in.rows() > 0) kernel.run(context, args);
  return kernel.run != run_later;
}

}  // namespace headrace
