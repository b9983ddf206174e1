// index_keys: what the index of sparse attention (DeepSeek-AI, 2025) keeps of a token, and the
// rotated queries that ask it.
//   kept     [rotate(k'), k''] of k = LayerNorm(key), or the key, beside what the layer attends;
//            or the key as it is
//   queries  [rotate(q_h'), q_h''] of each head h
// The first 2 pairs() components of a head are rotated: pairs (i, i + pairs()).
#pragma once

#include <span>

#include "ops/attention/kv_view.h"
#include "ops/op.h"

namespace headrace {

struct IndexKeysArgs {
  ConstTensorView keys;  // [T, index_dim] f32
  // [index_dim], or both null: keys are as they are (CPU)
  const float* norm = nullptr;
  const float* norm_bias = nullptr;
  float norm_eps = 0.0f;
  TensorView queries;   // [T, heads index_dim] of the activation type, in place
  ConstTensorView cos;  // [T, pairs] f32
  ConstTensorView sin;
  KvLayerView cache;
  std::span<const int64_t> slots;  // [T] where each token's key goes
  bool rotates_keys = true;        // CPU: else they are kept as they are
};

void index_keys(OpContext& context, const IndexKeysArgs& args);

OpCost op_cost(const IndexKeysArgs& args);
const KernelSet<IndexKeysArgs>& index_keys_kernels();
KernelTable<IndexKeysArgs> index_keys_cpu_kernels();
KernelTable<IndexKeysArgs> index_keys_cuda_kernels();

}  // namespace headrace
