#include "ops/attention/select_blocks.h"

#include <fmt/format.h>

#include "ops/attention/select_keys_scores.h"

namespace headrace {
namespace {

void check_args(const SelectBlocksArgs& args) {
  const BlockRule& rule = args.chosen.rule;
  CHECK(args.kv.index_dim > 0 && args.kv.block_tokens == kScoredKeys);
  CHECK(args.queries.columns() > 0 && args.queries.columns() % args.kv.index_dim == 0);
  CHECK(rule.tokens > 0 && rule.top > 0 && rule.local >= 0 && rule.local <= rule.top);
  CHECK(!rule.pooled || (rule.local == 0 && rule.top > 1));
  CHECK(args.chosen.stride >= int64_t{args.choosing_heads()} * rule.top);
  for (const AttentionSequence& sequence : args.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= args.queries.rows() &&
          sequence.kv_length >= sequence.row_count);
  }
}

}  // namespace

int64_t select_blocks_workspace_bytes(const BlockRule& rule, int32_t heads, int32_t kv_length_max) {
  const int64_t keys = int64_t{kv_length_max} + kScoredKeys;
  const int64_t of_head = keys * static_cast<int64_t>(sizeof(float)) +
                          rule.blocks_of(kv_length_max) * static_cast<int64_t>(sizeof(uint64_t));
  return kScoredRows * (rule.pooled ? 1 : heads) * of_head + 512;
}

const KernelSet<SelectBlocksArgs>& select_blocks_kernels() {
  static const KernelSet<SelectBlocksArgs> set({select_blocks_cpu_kernels()});
  return set;
}

OpCost op_cost(const SelectBlocksArgs& args) {
  int64_t pairs = 0, keys = 0;  // of rows and keys that they see
  for (const AttentionSequence& sequence : args.sequences) {
    pairs += int64_t{sequence.row_count} * sequence.kv_length;
    keys += sequence.kv_length;
  }
  OpCost cost =
      row_op_cost(args.queries.rows(), args.queries.columns(),
                  bytes_of(args.queries) + keys * index_part_bytes(args.kv) / args.kv.block_tokens);
  cost.shape = fmt::format("{} heads of {}", args.heads(), args.kv.index_dim);
  cost.flops = 2 * pairs * args.queries.columns();
  return cost;
}

void select_blocks(OpContext& context, const SelectBlocksArgs& args) {
  check_args(args);
  CHECK(is_activation(context.device, args.queries.dtype));
  if (args.sequences.empty()) return;
  run_op(context, select_blocks_kernels(), args);
}

}  // namespace headrace
