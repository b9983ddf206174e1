#include "ops/attention/select_keys.h"

#include <fmt/format.h>

#include "ops/attention/select_keys_scores.h"

namespace headrace {
namespace {

void check_args(const SelectKeysArgs& args) {
  const int64_t dim = args.kv.index_dim, heads = args.weights.columns();
  CHECK(dim > 0 && heads > 0 && args.kv.block_tokens == kScoredKeys);
  CHECK((args.queries.shape == Shape{args.weights.rows(), heads * dim}));
  CHECK(args.weights.dtype == DType::kF32);
  CHECK(args.chosen.top > 0 && args.chosen.stride >= args.chosen.top);
  CHECK(args.chosen.rate == args.kv.rate);
  for (const AttentionSequence& sequence : args.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= args.weights.rows() &&
          sequence.kv_length >= sequence.row_count);
    CHECK_MSG(args.kv.rate == 1 || sequence.tree_rows == 0, "rows of trees share no keys");
  }
}

}  // namespace

// Of keys that several tokens share there are fewer.
int64_t select_keys_workspace_bytes(int32_t kv_length_max) {
  const int64_t keys = int64_t{kv_length_max} + kScoredKeys;
  return kScoredRows * keys * static_cast<int64_t>(sizeof(float) + sizeof(uint64_t)) + 512;
}

int64_t select_keys_cuda_workspace_bytes(int64_t rows, int32_t kv_length_max) {
  const int64_t scored = std::min(rows, scored_rows_max(kv_length_max));
  return scored * scored_stride(kv_length_max) * static_cast<int64_t>(sizeof(float)) + 512;
}

const KernelSet<SelectKeysArgs>& select_keys_kernels() {
  static const KernelSet<SelectKeysArgs> set(
      {select_keys_cuda_kernels(), select_keys_cpu_kernels()});
  return set;
}

OpCost op_cost(const SelectKeysArgs& args) {
  int64_t pairs = 0, keys = 0;  // of rows and keys that they see
  for (const AttentionSequence& sequence : args.sequences) {
    const int32_t seen = sequence.kv_length / args.kv.rate;
    pairs += int64_t{sequence.row_count} * seen;
    keys += seen;
  }
  OpCost cost = row_op_cost(args.queries.rows(), args.queries.columns(),
                            bytes_of(args.queries) + bytes_of(args.weights) +
                                keys * index_part_bytes(args.kv) / block_keys(args.kv));
  cost.shape = fmt::format("{} heads of {}", args.weights.columns(), args.kv.index_dim);
  cost.flops = 2 * pairs * args.queries.columns();
  return cost;
}

void select_keys(OpContext& context, const SelectKeysArgs& args) {
  check_args(args);
  CHECK(is_activation(context.device, args.queries.dtype));
  const bool on_cpu = context.device.kind() == DeviceKind::kCpu;
  if (on_cpu ? args.sequences.empty() : args.queries.rows() == 0) return;
  run_op(context, select_keys_kernels(), args);
}

}  // namespace headrace
