// What a device keeps of each running sequence between steps, brought up to date at the front of a
// step from the deltas that came with it: block tables, the tokens that earlier steps sampled, and
// what penalties count.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "ops/op.h"

namespace headrace {

// block_tables[index] = block. In any order: no two of a step have the same index.
struct BlockTableEntry {
  int32_t index;
  int32_t block;
};

// token_counts[index] |= / += for one token of a sequence that joins; see device_sample.h.
struct TokenMark {
  int64_t index;      // slot * V + token
  int32_t in_output;  // 0: of the prompt
  int32_t unused = 0;
};

// `tokens` of a batch name a token that a step in flight samples by its slot.
constexpr TokenId token_of_slot(SlotId slot) { return -1 - slot.value; }
constexpr SlotId slot_of_token(TokenId token) { return SlotId(-1 - token); }

// Everything in device memory; the counts are the host's.
struct SlotStateArgs {
  std::span<const BlockTableEntry> entries;
  std::span<const TokenMark> marks;
  std::span<TokenId> tokens;             // [T]: token_of_slot(s) becomes last_tokens[s]
  int32_t* block_tables = nullptr;       // [slots, blocks of a sequence]
  uint16_t* token_counts = nullptr;      // [slots, V]; marked rows were zeroed before
  const TokenId* last_tokens = nullptr;  // [slots]
};

void update_slot_state(OpContext& context, const SlotStateArgs& args);

OpCost op_cost(const SlotStateArgs& args);
const KernelSet<SlotStateArgs>& slot_state_kernels();
KernelTable<SlotStateArgs> slot_state_cuda_kernels();
KernelTable<SlotStateArgs> slot_state_null_kernels();

}  // namespace headrace
