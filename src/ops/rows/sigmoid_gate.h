// x := x * sigmoid(gate): attention whose heads have a gate each row (Qiu et al., 2025).
#pragma once

#include "ops/op.h"

namespace headrace {

struct SigmoidGateArgs {
  TensorView x;          // [T, D] f32
  ConstTensorView gate;  // [T, D] f32
};

void sigmoid_gate(OpContext& context, const SigmoidGateArgs& args);

OpCost op_cost(const SigmoidGateArgs& args);
const KernelSet<SigmoidGateArgs>& sigmoid_gate_kernels();
KernelTable<SigmoidGateArgs> sigmoid_gate_cpu_kernels();

}  // namespace headrace
