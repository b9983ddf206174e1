#include "ops/activation.h"

namespace headrace {

std::span<const Kernel<GatedActivationArgs>> gated_activation_cpu_kernels();  // activation_cpu.cc

namespace {

void check_args(const GatedActivationArgs& args) {
  CHECK(args.gate_up.shape.rank() == 2);
  CHECK(args.gate_up.dtype == DType::kF32 && args.out.dtype == DType::kF32);
  CHECK((args.gate_up.shape == Shape{args.out.rows(), 2 * args.out.columns()}));
}

}  // namespace

KernelSet<GatedActivationArgs> gated_activation_kernels() {
  return KernelSet<GatedActivationArgs>(gated_activation_cpu_kernels());
}

void gated_activation(OpContext& context, const GatedActivationArgs& args) {
  check_args(args);
  if (args.out.rows() == 0) return;
  gated_activation_kernels().select(context.device, args).run(context, args);
}

}  // namespace headrace
