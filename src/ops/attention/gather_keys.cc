#include "ops/attention/gather_keys.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const GatherKeysArgs& args) {
  CHECK(args.from.v_aliases_k && args.to.v_aliases_k && args.to.k_format == KvFormat::kF32);
  CHECK(args.to.keys == KeyLayout::kTransposed && args.to.block_tokens == args.from.block_tokens);
  CHECK(args.to.k_dim == args.from.k_dim && args.to.kv_heads == args.from.kv_heads);
  CHECK(args.to.index_dim == 0);
}

}  // namespace

const KernelSet<GatherKeysArgs>& gather_keys_kernels() {
  static const KernelSet<GatherKeysArgs> set({gather_keys_cpu_kernels()});
  return set;
}

OpCost op_cost(const GatherKeysArgs& args) {
  int64_t keys = 0;
  for (const GatheredRow& row : args.rows) keys += row.count;
  const int64_t bytes = k_part_bytes(args.from) + k_part_bytes(args.to);
  OpCost cost =
      row_op_cost(std::ssize(args.rows), args.from.k_dim, keys * bytes / args.from.block_tokens);
  cost.shape = fmt::format("keys of {}", args.from.k_dim);
  return cost;
}

void gather_keys(OpContext& context, const GatherKeysArgs& args) {
  check_args(args);
  if (args.rows.empty()) return;
  run_op(context, gather_keys_kernels(), args);
}

}  // namespace headrace
