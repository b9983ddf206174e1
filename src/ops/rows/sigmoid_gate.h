// x := x * sigmoid(gate): attention whose heads have a gate each row (Qiu et al., 2025). A gate may
// be of as many neighbouring columns as x has more of, and multiply by its softplus, ln(1 +
// e^gate).
#pragma once

#include "ops/op.h"

namespace headrace {

enum class GateKind : uint8_t { kSigmoid, kSoftplus };

struct SigmoidGateArgs {
  TensorView x;          // [T, D], of the activation type
  ConstTensorView gate;  // [T, G] of x's type; G divides D
  GateKind kind = GateKind::kSigmoid;

  int64_t columns_of_gate() const { return x.columns() / gate.columns(); }
};

void sigmoid_gate(OpContext& context, const SigmoidGateArgs& args);

OpCost op_cost(const SigmoidGateArgs& args);
const KernelSet<SigmoidGateArgs>& sigmoid_gate_kernels();
KernelTable<SigmoidGateArgs> sigmoid_gate_cpu_kernels();
KernelTable<SigmoidGateArgs> sigmoid_gate_cuda_kernels();

}  // namespace headrace
