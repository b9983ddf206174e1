// select_blocks: the blocks of keys that a row of block-sparse attention (MiniMax M3, 2026)
// attends. A block is so many neighbouring positions of a text. Of the index keys k that a layer
// keeps, and the query q of one of its heads, a block has the score
//   max over its keys that the row sees of q' k
// Each head chooses `top` blocks: the last `local` ones that the row sees a key of, and of the
// others those of the largest scores, of equal ones the first in the text. Where a row sees no more
// than `top` blocks, it has all.
//
// Pooled blocks (Qwen 4) have one key k, in the place of their last token (pool_index_keys.h), and
// all heads choose together, by
//   sum over the heads h of max(q_h' k, 0)
// `top - 1` of the blocks that a row sees whole, beside the last one, where it sees a part of it.
//
// A score has one order of arithmetic on all instruction sets, but for the reference, which sums
// doubles (as of select_keys): the choice does not depend on how a text is cut into steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/round_up.h"
#include "ops/attention/attention.h"
#include "ops/op.h"

namespace headrace {

struct BlockRule {
  int32_t tokens = 0;  // of a block
  int32_t top = 0;     // blocks of a head and row
  int32_t local = 0;   // of these, chosen whatever they score; at most `top`. Of pooled ones 0
  bool pooled = false;

  int32_t keys() const { return tokens * top; }  // that a row attends at most
  // Rows that see no more attend all of them.
  int32_t keys_of_all() const { return pooled ? keys() - 1 : keys(); }
  int64_t blocks_of(int32_t length) const { return divide_up(length, tokens); }
};

// Rows of the numbers of chosen blocks, head after head, each ascending; of pooled ones those of
// all heads.
struct ChosenBlocks {
  int32_t* front = nullptr;
  int64_t stride = 0;  // from one row to the next
  BlockRule rule;

  int32_t* of(int64_t t, int32_t head) const {
    return front + t * stride + (rule.pooled ? 0 : head * rule.top);
  }
  // Of each head of a row at `position`.
  int32_t count(int32_t position) const {
    const bool whole = rule.pooled && (position + 1) % rule.tokens == 0;  // the last one is
    return std::min(whole ? rule.top - 1 : rule.top, position / rule.tokens + 1);
  }
};

// On a CPU.
struct SelectBlocksArgs {
  ConstTensorView queries;                       // [T, heads index_dim] f32
  KvLayerView kv;                                // this step's keys are already there
  std::span<const AttentionSequence> sequences;  // of rows
  int32_t table_offset = 0;                      // as in AttentionArgs
  ChosenBlocks chosen;                           // of all rows

  int32_t heads() const { return static_cast<int32_t>(queries.columns() / kv.index_dim); }
  int32_t choosing_heads() const { return chosen.rule.pooled ? 1 : heads(); }
};

// Takes select_blocks_workspace_bytes() of the workspace at most.
void select_blocks(OpContext& context, const SelectBlocksArgs& args);
int64_t select_blocks_workspace_bytes(const BlockRule& rule, int32_t heads, int32_t kv_length_max);

OpCost op_cost(const SelectBlocksArgs& args);
const KernelSet<SelectBlocksArgs>& select_blocks_kernels();
KernelTable<SelectBlocksArgs> select_blocks_cpu_kernels();

}  // namespace headrace
