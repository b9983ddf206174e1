#include "ops/attention/latent_kv.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const LatentKvArgs& args) {
  const KvLayerView& cache = args.cache;
  const int64_t tokens = args.kv.rows();
  const int64_t rotated = int64_t{cache.k_dim} - cache.v_dim;
  CHECK(cache.kv_heads == 1 && cache.v_aliases_k && rotated > 0 && rotated % 2 == 0);
  CHECK((args.kv.shape == Shape{tokens, cache.k_dim}));
  CHECK(args.heads > 0 && args.q.rows() == tokens && args.q.dtype == args.kv.dtype);
  CHECK(args.q.columns() % args.heads == 0 && args.q.columns() / args.heads >= rotated);
  CHECK(args.queries.dtype == args.kv.dtype);
  CHECK((args.queries.shape == Shape{tokens, int64_t{args.heads} * cache.k_dim}));
  CHECK(args.cos.columns() == rotated / 2 && args.cos.shape == args.sin.shape);
  CHECK(args.norm != nullptr && static_cast<int64_t>(args.slots.size()) == tokens);
}

}  // namespace

const KernelSet<LatentKvArgs>& latent_kv_kernels() {
  static const KernelSet<LatentKvArgs> set({latent_kv_cuda_kernels(), latent_kv_cpu_kernels()});
  return set;
}

OpCost op_cost(const LatentKvArgs& args) {
  const KvLayerView& cache = args.cache;
  const int64_t rows = args.kv.rows();
  const int64_t rotated = rows * args.heads * (cache.k_dim - cache.v_dim) * 4;
  OpCost cost = row_op_cost(
      rows, args.kv.columns(),
      bytes_of(args.kv) + 2 * rotated + rows * k_part_bytes(cache) / cache.block_tokens);
  cost.shape = fmt::format("{} heads, {} + {}", args.heads, cache.v_dim, cache.k_dim - cache.v_dim);
  return cost;
}

void latent_kv(OpContext& context, const LatentKvArgs& args) {
  check_args(args);
  if (args.kv.rows() == 0) return;
  run_op(context, latent_kv_kernels(), args);
}

}  // namespace headrace
