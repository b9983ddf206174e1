// x := x * sigmoid(gate): attention whose heads have a gate each row (Qiu et al., 2025).
#pragma once

#include "ops/op.h"

namespace headrace {

struct SigmoidGateArgs {
  TensorView x;          // [T, D], of the activation type
  ConstTensorView gate;  // [T, D] of x's type
};

void sigmoid_gate(OpContext& context, const SigmoidGateArgs& args);

OpCost op_cost(const SigmoidGateArgs& args);
const KernelSet<SigmoidGateArgs>& sigmoid_gate_kernels();
KernelTable<SigmoidGateArgs> sigmoid_gate_cpu_kernels();
KernelTable<SigmoidGateArgs> sigmoid_gate_cuda_kernels();

}  // namespace headrace
