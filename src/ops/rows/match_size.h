// match_size: rows become as large as others, by their root mean squares: rows of streams that are
// made of one, or joined to it (Gemma 3n).
//   out = x * rms(like) / rms(x), or added to out;   rms(x) = sqrt(max(mean(x^2), least))
#pragma once

#include "ops/op.h"

namespace headrace {

struct MatchSizeArgs {
  ConstTensorView x;     // [T, D] of the model's activation type
  ConstTensorView like;  // [T, D] of x's type
  float least = 0.0f;    // of x's mean square; of like's it is 0
  TensorView out;        // [T, D] of x's type; may be x, no part of like
  bool adds = false;     // to out
};

// Row t of the results depends on row t of the arguments alone, bit for bit.
void match_size(OpContext& context, const MatchSizeArgs& args);

OpCost op_cost(const MatchSizeArgs& args);
const KernelSet<MatchSizeArgs>& match_size_kernels();
KernelTable<MatchSizeArgs> match_size_cpu_kernels();
KernelTable<MatchSizeArgs> match_size_cuda_kernels();

}  // namespace headrace
