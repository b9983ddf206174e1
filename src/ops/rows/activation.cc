#include "ops/rows/activation.h"

namespace headrace {
namespace {

void check_args(const OpContext& context, const GatedActivationArgs& args) {
  CHECK(args.gate_up.shape.rank() == 2);
  CHECK(is_activation(context.device, args.out.dtype));
  CHECK(args.gate_up.dtype == args.out.dtype);
  CHECK(args.activation != Activation::kXielu);
  CHECK(args.swish.is_usual() || context.device.kind() == DeviceKind::kCpu);
  const int64_t parts = args.up.data == nullptr ? 2 : 1;
  CHECK((args.gate_up.shape == Shape{args.out.rows(), parts * args.out.columns()}));
  if (parts == 1) CHECK(args.up.shape == args.out.shape && args.up.dtype == args.out.dtype);
}

void check_args(const OpContext& context, const ActivationArgs& args) {
  CHECK(args.x.shape.rank() == 2 && args.x.shape == args.out.shape);
  CHECK(is_activation(context.device, args.out.dtype) && args.x.dtype == args.out.dtype);
}

}  // namespace

const KernelSet<GatedActivationArgs>& gated_activation_kernels() {
  static const KernelSet<GatedActivationArgs> set(
      {gated_activation_cuda_kernels(), gated_activation_cpu_kernels()});
  return set;
}

OpCost op_cost(const GatedActivationArgs& args) {
  return row_op_cost(args.out.rows(), args.out.columns(),
                     bytes_of(args.gate_up) + bytes_of(args.up) + bytes_of(args.out));
}

void gated_activation(OpContext& context, const GatedActivationArgs& args) {
  check_args(context, args);
  if (args.out.rows() == 0) return;
  run_op(context, gated_activation_kernels(), args);
}

const KernelSet<ActivationArgs>& activation_kernels() {
  static const KernelSet<ActivationArgs> set({activation_cuda_kernels(), activation_cpu_kernels()});
  return set;
}

OpCost op_cost(const ActivationArgs& args) {
  return row_op_cost(args.out.rows(), args.out.columns(), bytes_of(args.x) + bytes_of(args.out));
}

void activation(OpContext& context, const ActivationArgs& args) {
  check_args(context, args);
  if (args.out.rows() == 0) return;
  run_op(context, activation_kernels(), args);
}

}  // namespace headrace
