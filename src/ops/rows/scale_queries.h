// scale_queries: what a family multiplies its queries by beside the scale of scores: a factor of
// their position (Llama 4, Ministral 3), weights of a head's components (those of norms behind the
// rotation), or both.
#pragma once

#include <cstdint>
#include <span>

#include "ops/op.h"

namespace headrace {

// By how much the queries of later positions are multiplied: 1 + scale * ln(1 + floor((position +
// offset) / step)), or, `smooth`, 1 + scale * ln(max(1, (position + offset) / step)).
struct QueryTemperature {
  float scale = 0.0f;  // 0: not
  int32_t step = 0;    // > 0 where there is a scale
  int32_t offset = 0;
  bool smooth = false;
};

struct ScaleQueriesArgs {
  TensorView x;  // [T, Hq d] of the model's activation type, in place; may be columns of more
  QueryTemperature temperature = {};
  std::span<const int32_t> positions =
      {};                          // [T], in device memory; of no temperature they may lack
  const float* weights = nullptr;  // [d], in device memory, or null: of no weights
  int32_t head_dim = 0;            // d, where there are weights: a part of the columns
};

// Products are in f32, rounded once. A row at a position whose factor is 1 keeps its bits where
// there are no weights.
void scale_queries(OpContext& context, const ScaleQueriesArgs& args);

OpCost op_cost(const ScaleQueriesArgs& args);
const KernelSet<ScaleQueriesArgs>& scale_queries_kernels();
KernelTable<ScaleQueriesArgs> scale_queries_cpu_kernels();
KernelTable<ScaleQueriesArgs> scale_queries_cuda_kernels();

}  // namespace headrace
