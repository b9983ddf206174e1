// Activations of feed-forward networks: plain, out = act(x), and gated (Shazeer, 2020),
// out = act(gate) * up.
#pragma once

#include "ops/op.h"
#include "ops/rows/activation_row.h"

namespace headrace {

struct GatedActivationArgs {
  ConstTensorView gate_up;  // [T, 2F]: gate, then up; of the model's activation type
  Activation activation = Activation::kSilu;
  TensorView out;  // [T, F] of gate_up's type; apart from it, or its first F columns
  // [T, F] where gate_up is the gate alone, [T, F]; else no data.
  ConstTensorView up = {};
  ClampedSwishShape swish = {};  // CUDA: the usual one
};

struct ActivationArgs {
  ConstTensorView x;  // [T, F] of the model's activation type
  Activation activation = Activation::kGeluTanh;
  TensorView out;  // [T, F] of x's type; may be x itself
  XieluParameters xielu = {};
};

// Their definitions, of one value: what becomes of it, and what its activated gate multiplies.
// REQUIRES: not Activation::kXielu
double activated(Activation activation, double x, const ClampedSwishShape& swish = {});
double activated_up(Activation activation, double up, const ClampedSwishShape& swish = {});

void gated_activation(OpContext& context, const GatedActivationArgs& args);

void activation(OpContext& context, const ActivationArgs& args);

OpCost op_cost(const GatedActivationArgs& args);
const KernelSet<GatedActivationArgs>& gated_activation_kernels();
KernelTable<GatedActivationArgs> gated_activation_cpu_kernels();
KernelTable<GatedActivationArgs> gated_activation_cuda_kernels();
OpCost op_cost(const ActivationArgs& args);
const KernelSet<ActivationArgs>& activation_kernels();
KernelTable<ActivationArgs> activation_cpu_kernels();
KernelTable<ActivationArgs> activation_cuda_kernels();

}  // namespace headrace
