#include "ops/linear/gated_linear.h"

#include "ops/rows/activation.h"

namespace headrace {
namespace {

bool any(const DeviceTraits&, const GatedLinearArgs&) { return true; }

void run_two_ops(OpContext& context, const GatedLinearArgs& args) {
  linear(context, gate_up_product(args));
  activate_gate_up(context, args);
}

constexpr Kernel<GatedLinearArgs> kGatedLinearTwoOps[] = {
    {"gated_linear/two_ops", any, run_two_ops}};

void check_shapes(const GatedLinearArgs& args) {
  CHECK(args.weight != nullptr && args.weight->n() % 2 == 0);
  CHECK(args.x.columns() == args.weight->k());
  CHECK(args.y.dtype == args.x.dtype && args.gate_up.dtype == args.x.dtype);
  CHECK((args.y.shape == Shape{args.x.rows(), args.weight->n() / 2}));
  CHECK((args.gate_up.shape == Shape{args.x.rows(), args.weight->n()}));
}

}  // namespace

LinearArgs gate_up_product(const GatedLinearArgs& args) {
  return {.x = args.x, .weight = args.weight, .bias = args.bias, .y = args.gate_up};
}

void activate_gate_up(OpContext& context, const GatedLinearArgs& args) {
  gated_activation(context,
                   {.gate_up = args.gate_up, .activation = args.activation, .out = args.y});
}

const KernelSet<GatedLinearArgs>& gated_linear_kernels() {
  static const KernelSet<GatedLinearArgs> set({gated_linear_cuda_kernels(), kGatedLinearTwoOps});
  return set;
}

void gated_linear(OpContext& context, const GatedLinearArgs& args) {
  check_shapes(args);
  if (args.x.rows() == 0) return;
  const KernelSet<GatedLinearArgs>& kernels = gated_linear_kernels();
  const Kernel<GatedLinearArgs>& kernel = choose_kernel(context, kernels, args);
  kernel.run(context, args);
}

}  // namespace headrace
