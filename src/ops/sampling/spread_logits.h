// The logits of a draft that knows fewer tokens than its model, over all of the model's ids: what
// it has no logits of cannot come.
#pragma once

#include "base/ids.h"
#include "ops/op.h"

namespace headrace {

struct SpreadLogitsArgs {
  ConstTensorView logits;        // [R, C] f32, C >= 0
  const TokenId* ids = nullptr;  // [C] in device memory, each once and below V; null: 0, 1, ...
  TensorView all;                // [R, V] f32, V >= C: -infinity where nothing comes
};

void spread_logits(OpContext& context, const SpreadLogitsArgs& args);

OpCost op_cost(const SpreadLogitsArgs& args);
const KernelSet<SpreadLogitsArgs>& spread_logits_kernels();
KernelTable<SpreadLogitsArgs> spread_logits_cpu_kernels();
KernelTable<SpreadLogitsArgs> spread_logits_cuda_kernels();
KernelTable<SpreadLogitsArgs> spread_logits_null_kernels();

}  // namespace headrace
