#include "ops/linear/activated_linear.h"

namespace headrace {
namespace {

bool any(const DeviceTraits&, const ActivatedLinearArgs&) { return true; }

void run_two_ops(OpContext& context, const ActivatedLinearArgs& args) {
  gated_activation(context, args.gates);
  linear(context, args.linear);
}

constexpr Kernel<ActivatedLinearArgs> kActivatedLinearTwoOps[] = {
    {"activated_linear/two_ops", any, run_two_ops}};

}  // namespace

const KernelSet<ActivatedLinearArgs>& activated_linear_kernels() {
  static const KernelSet<ActivatedLinearArgs> set(
      {activated_linear_cuda_kernels(), kActivatedLinearTwoOps});
  return set;
}

bool activation_joins(OpContext& context, const ActivatedLinearArgs& args) {
  const KernelSet<ActivatedLinearArgs>& kernels = activated_linear_kernels();
  const Kernel<ActivatedLinearArgs>& kernel =
      context.hooks == nullptr ? kernels.select(context.device, args)
                               : kernels.select(context.device, args, *context.hooks);
  return kernel.run != run_two_ops;
}

void activated_linear(OpContext& context, const ActivatedLinearArgs& args) {
  const ConstTensorView& x = args.linear.x;
  CHECK(x.data == args.gates.out.data && x.shape == args.gates.out.shape);
  CHECK(args.gates.up.data == nullptr && args.gates.gate_up.rows() == x.rows());
  CHECK(args.gates.gate_up.columns() == 2 * x.columns());
  if (x.rows() == 0) return;
  choose_kernel(context, activated_linear_kernels(), args).run(context, args);
}

}  // namespace headrace
