// AltUp (Baykal et al., 2023): of N streams of rows a layer computes one, the active one S_a.
// Before it all streams are predicted of all, behind it each is corrected by what the layer has
// made of the active one. m = tanh(modes) of a row says by how much.
//   altup_predict  S_j := S_j + sum_i (P m)_(jN + i) S_i;   x := S_a
//   altup_correct  S_j := S_j + (1 + (C m)_j) (x - S_a);   out = scale * S_a
#pragma once

#include "ops/op.h"

namespace headrace {

inline constexpr int32_t kAltUpStreamsMax = 16;

struct AltUpPredictArgs {
  TensorView streams;     // [T, N D] of the model's activation type, one beside the other
  ConstTensorView modes;  // [T, N] f32
  const float* weights;   // P [N N, N], in device memory
  int32_t active = 0;     // a
  TensorView x;           // [T, D] of streams' type; written
};

struct AltUpCorrectArgs {
  TensorView streams;     // [T, N D] of the model's activation type
  ConstTensorView modes;  // [T, N] f32
  const float* weights;   // C [N, N], in device memory
  int32_t active = 0;     // a
  ConstTensorView x;      // [T, D] of streams' type
  const float* scale;     // [D], in device memory, or null: 1
  TensorView out;         // [T, D] of streams' type, apart from x
};

// Row t of the results depends on row t of the arguments alone, bit for bit.
void altup_predict(OpContext& context, const AltUpPredictArgs& args);
void altup_correct(OpContext& context, const AltUpCorrectArgs& args);

OpCost op_cost(const AltUpPredictArgs& args);
const KernelSet<AltUpPredictArgs>& altup_predict_kernels();
KernelTable<AltUpPredictArgs> altup_predict_cpu_kernels();
KernelTable<AltUpPredictArgs> altup_predict_cuda_kernels();
OpCost op_cost(const AltUpCorrectArgs& args);
const KernelSet<AltUpCorrectArgs>& altup_correct_kernels();
KernelTable<AltUpCorrectArgs> altup_correct_cpu_kernels();
KernelTable<AltUpCorrectArgs> altup_correct_cuda_kernels();

}  // namespace headrace
