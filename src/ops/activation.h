// The gate of a gated feed-forward network (Shazeer, 2020): out = act(gate) * up.
#pragma once

#include "ops/activation_row.h"
#include "ops/op.h"

namespace headrace {

struct GatedActivationArgs {
  ConstTensorView gate_up;  // [T, 2F] f32: gate, then up
  Activation activation = Activation::kSilu;
  TensorView out;  // [T, F] f32; no overlap with gate_up
};

void gated_activation(OpContext& context, const GatedActivationArgs& args);

KernelSet<GatedActivationArgs> gated_activation_kernels();

}  // namespace headrace
