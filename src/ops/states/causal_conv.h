// A convolution by channel over the rows of a sequence up to each (LFM2; Mamba, Gu and Dao, 2023):
//   v_t = x_t (* before_t);   y_t = act(bias + sum over j of w_j v_{t - taps + 1 + j}) (* behind_t)
// Its state is the last taps - 1 rows of v, zero before the first.
#pragma once

#include "ops/op.h"
#include "ops/states/state_view.h"

namespace headrace {

enum class ConvActivation : uint8_t { kNone, kSilu };

struct CausalConvArgs {
  ConstTensorView x;       // [T, C], of the activation type
  ConstTensorView before;  // [T, C] of x's type, or no data
  ConstTensorView behind;  // [T, C] of x's type, or no data
  const float* weight;     // [taps, C]
  const float* bias;       // [C] or null
  int32_t taps = 0;
  ConvActivation activation = ConvActivation::kNone;
  StateView states;  // [taps - 1, C] f32, the oldest first
  // [T, C] of x's type; apart from the others, or (CPU) x, before or behind. Rows of no sequence
  // are not written.
  TensorView out;
};

constexpr int64_t causal_conv_state_bytes(int32_t taps, int64_t channels) {
  return (taps - 1) * channels * static_cast<int64_t>(sizeof(float));
}

void causal_conv(OpContext& context, const CausalConvArgs& args);

OpCost op_cost(const CausalConvArgs& args);
const KernelSet<CausalConvArgs>& causal_conv_kernels();
KernelTable<CausalConvArgs> causal_conv_cpu_kernels();
KernelTable<CausalConvArgs> causal_conv_cuda_kernels();

}  // namespace headrace
