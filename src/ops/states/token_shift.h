// Each row mixed with the one before it, in several ways at once (RWKV; Peng et al., 2023):
//   out_t[i] = x_t + (x_{t-1} - x_t) * mix[i]
// Its state is the last row of x, zero before the first.
#pragma once

#include "ops/op.h"
#include "ops/states/state_view.h"

namespace headrace {

struct TokenShiftArgs {
  ConstTensorView x;  // [T, D], of the activation type
  const float* mix;   // [mixes, D]
  int32_t mixes = 0;
  StateView states;  // [D] f32
  // [T, mixes * D] of x's type, one way beside the other; apart from x. Rows of no sequence are
  // not written.
  TensorView out;
};

constexpr int64_t token_shift_state_bytes(int64_t columns) {
  return columns * static_cast<int64_t>(sizeof(float));
}

void token_shift(OpContext& context, const TokenShiftArgs& args);

OpCost op_cost(const TokenShiftArgs& args);
const KernelSet<TokenShiftArgs>& token_shift_kernels();
KernelTable<TokenShiftArgs> token_shift_cpu_kernels();
KernelTable<TokenShiftArgs> token_shift_cuda_kernels();

}  // namespace headrace
