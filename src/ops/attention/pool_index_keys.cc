#include "ops/attention/pool_index_keys.h"

namespace headrace {

const KernelSet<PoolIndexKeysArgs>& pool_index_keys_kernels() {
  static const KernelSet<PoolIndexKeysArgs> set({pool_index_keys_cpu_kernels()});
  return set;
}

OpCost op_cost(const PoolIndexKeysArgs& args) {
  const int64_t numbers = int64_t{args.tokens} * args.cache.index_dim;
  return row_op_cost(std::ssize(args.blocks), numbers,
                     std::ssize(args.blocks) * numbers * static_cast<int64_t>(sizeof(float)));
}

void pool_index_keys(OpContext& context, const PoolIndexKeysArgs& args) {
  const int64_t blocks = std::ssize(args.blocks), pairs = args.cos.columns();
  CHECK(args.cache.index_dim > 0 && args.tokens > 0 && 2 * pairs <= args.cache.index_dim);
  CHECK(args.cos.rows() == blocks && args.sin.shape == args.cos.shape);
  for (const CompleteBlock& block : args.blocks) {
    CHECK((block.sequence->position(block.row) + 1) % args.tokens == 0);
  }
  if (blocks > 0) run_op(context, pool_index_keys_kernels(), args);
}

}  // namespace headrace
