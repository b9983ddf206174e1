// Activations of feed-forward networks: plain, out = act(x), and gated (Shazeer, 2020),
// out = act(gate) * up.
#pragma once

#include "ops/activation_row.h"
#include "ops/op.h"

namespace headrace {

struct GatedActivationArgs {
  ConstTensorView gate_up;  // [T, 2F] f32: gate, then up
  Activation activation = Activation::kSilu;
  TensorView out;  // [T, F] f32; no overlap with gate_up
};

struct ActivationArgs {
  ConstTensorView x;  // [T, F] f32
  Activation activation = Activation::kGeluTanh;
  TensorView out;  // [T, F] f32; may be x itself
};

void gated_activation(OpContext& context, const GatedActivationArgs& args);

void activation(OpContext& context, const ActivationArgs& args);

KernelSet<GatedActivationArgs> gated_activation_kernels();
KernelSet<ActivationArgs> activation_kernels();

}  // namespace headrace
