// pool_index_keys: the one key that a block of so many neighbouring positions has in an index of
// blocks (Qwen 4). Of each token its key is kept as it is; when the last one of a block has come,
// its place takes that of the block in its stead:
//   rotate(RMSNorm(mean of the keys)), whose first 2 pairs() components rotate by the position of
// the block's first token: pairs (i, i + pairs()).
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention/attention.h"
#include "ops/op.h"

namespace headrace {

// Row `row` of a sequence, the last of a block.
struct CompleteBlock {
  const AttentionSequence* sequence = nullptr;
  int32_t row = 0;
};

struct PoolIndexKeysArgs {
  KvLayerView cache;            // the tokens' own keys are already there
  int32_t table_offset = 0;     // as in AttentionArgs
  int32_t tokens = 0;           // of a block
  const float* norm = nullptr;  // [index_dim]
  float norm_eps = 0.0f;
  ConstTensorView cos;  // [blocks, pairs] f32, of the positions of the blocks' first tokens
  ConstTensorView sin;
  std::span<const CompleteBlock> blocks;
};

// A key depends on those of its tokens alone, bit for bit. CPU.
void pool_index_keys(OpContext& context, const PoolIndexKeysArgs& args);

OpCost op_cost(const PoolIndexKeysArgs& args);
const KernelSet<PoolIndexKeysArgs>& pool_index_keys_kernels();
KernelTable<PoolIndexKeysArgs> pool_index_keys_cpu_kernels();

}  // namespace headrace
