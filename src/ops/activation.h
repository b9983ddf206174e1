// The gate of a gated feed-forward network (Shazeer, 2020): out = act(gate) * up.
#pragma once

#include "ops/op.h"

namespace headrace {

enum class Activation {
  kSilu,      // x / (1 + exp(-x))
  kGeluTanh,  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kGeluErf,   // x/2 (1 + erf(x / sqrt 2))
};

struct GatedActivationArgs {
  ConstTensorView gate_up;  // [T, 2F] f32: gate, then up
  Activation activation = Activation::kSilu;
  TensorView out;  // [T, F] f32; no overlap with gate_up
};

void gated_activation(OpContext& context, const GatedActivationArgs& args);

KernelSet<GatedActivationArgs> gated_activation_kernels();

}  // namespace headrace
