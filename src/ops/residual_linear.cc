#include "ops/residual_linear.h"

namespace headrace {
namespace {

bool any(const DeviceTraits&, const ResidualLinearArgs&) { return true; }
void run_later(OpContext& context, const ResidualLinearArgs& args) {
  linear(context, {.x = args.in, .weight = args.weight, .bias = args.bias, .y = args.branch});
}

bool unscaled(const DeviceTraits&, const ResidualLinearArgs& args) { return args.scale == 1.0f; }
void run_accumulated(OpContext& context, const ResidualLinearArgs& args) {
  linear(context, {.x = args.in,
                   .weight = args.weight,
                   .bias = args.bias,
                   .y = args.x,
                   .output = LinearOutput::kAccumulate});
}

constexpr Kernel<ResidualLinearArgs> kKernels[] = {
    {"residual_linear/later", any, run_later},
    {"residual_linear/accumulated", unscaled, run_accumulated}};
constexpr KernelSet<ResidualLinearArgs> kSet{kKernels};

}  // namespace

const KernelSet<ResidualLinearArgs>& residual_linear_kernels() { return kSet; }

bool residual_linear(OpContext& context, const ResidualLinearArgs& args) {
  CHECK(args.x.shape == args.branch.shape && args.x.dtype == args.branch.dtype);
  const Kernel<ResidualLinearArgs>& kernel =
      context.hooks == nullptr ? kSet.select(context.device, args)
                               : kSet.select(context.device, args, *context.hooks);
  kernel.run(context, args);
  return kernel.run == run_accumulated;
}

}  // namespace headrace
