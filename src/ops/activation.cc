#include "ops/activation.h"

namespace headrace {

std::span<const Kernel<GatedActivationArgs>> gated_activation_cpu_kernels();  // activation_cpu.cc
std::span<const Kernel<ActivationArgs>> activation_cpu_kernels();             // activation_cpu.cc

namespace {

void check_args(const GatedActivationArgs& args) {
  CHECK(args.gate_up.shape.rank() == 2);
  CHECK(args.gate_up.dtype == DType::kF32 && args.out.dtype == DType::kF32);
  CHECK((args.gate_up.shape == Shape{args.out.rows(), 2 * args.out.columns()}));
}

void check_args(const ActivationArgs& args) {
  CHECK(args.x.shape.rank() == 2 && args.x.shape == args.out.shape);
  CHECK(args.x.dtype == DType::kF32 && args.out.dtype == DType::kF32);
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

KernelSet<ActivationArgs> activation_kernels() {
  return KernelSet<ActivationArgs>(activation_cpu_kernels());
}

void activation(OpContext& context, const ActivationArgs& args) {
  check_args(args);
  if (args.out.rows() == 0) return;
  activation_kernels().select(context.device, args).run(context, args);
}

}  // namespace headrace
