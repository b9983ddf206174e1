// The real-gated linear recurrent unit (Griffin; De et al., 2024): each channel has a state that
// forgets by a factor of the row's,
//   i = sigmoid(in_t + in_bias), log a = rate sigmoid(forget_t + forget_bias)   (rate <= 0)
//   h := a h + sqrt(1 - a^2) i x_t;   out_t = h gate_t
// The first row of a text is taken in whole, h := i x.
#pragma once

#include "ops/op.h"
#include "ops/states/state_view.h"

namespace headrace {

struct RgLruArgs {
  ConstTensorView x;                          // [T, C], of the activation type
  ConstTensorView in, forget;                 // [T, C] f32
  ConstTensorView gate;                       // [T, C] of x's type
  const float *in_bias, *forget_bias, *rate;  // [C]
  StateView states;                           // [C] f32
  // [T, C] of x's type; may be x or gate, where in and forget are of its type also one of these.
  // Rows of no sequence are not written.
  TensorView out;
};

constexpr int64_t rg_lru_state_bytes(int64_t channels) {
  return channels * static_cast<int64_t>(sizeof(float));
}

void rg_lru(OpContext& context, const RgLruArgs& args);

OpCost op_cost(const RgLruArgs& args);
const KernelSet<RgLruArgs>& rg_lru_kernels();
KernelTable<RgLruArgs> rg_lru_cpu_kernels();
KernelTable<RgLruArgs> rg_lru_cuda_kernels();

}  // namespace headrace
