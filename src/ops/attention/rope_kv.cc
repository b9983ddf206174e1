#include "ops/attention/rope_kv.h"

namespace headrace {
namespace {

void check_args(const OpContext& context, const RopeKvArgs& args) {
  const int64_t tokens = args.qkv.rows();
  const int64_t heads = int64_t{args.query_heads} + 2 * int64_t{args.kv.kv_heads};
  CHECK(is_activation(context.device, args.qkv.dtype));
  CHECK((args.qkv.shape == Shape{tokens, heads * args.kv.head_dim}));
  CHECK(args.cos.dtype == DType::kF32 && args.sin.dtype == DType::kF32);
  CHECK(args.cos.shape == args.sin.shape && args.cos.rows() == tokens);
  CHECK(2 * args.cos.columns() <= args.kv.head_dim);
  CHECK(static_cast<int64_t>(args.slots.size()) == tokens);
  CHECK((args.q_norm == nullptr) == (args.k_norm == nullptr));
  CHECK(args.kv.dtype == DType::kF32 || args.kv.dtype == DType::kF16 ||
        args.kv.dtype == DType::kBF16);
}

}  // namespace

const KernelSet<RopeKvArgs>& rope_kv_kernels() {
  static const KernelSet<RopeKvArgs> set({rope_kv_cuda_kernels(), rope_kv_cpu_kernels()});
  return set;
}

OpCost op_cost(const RopeKvArgs& args) {
  // Queries are rotated in place, keys and values go to the cache.
  const int64_t rows = args.qkv.rows(), d = args.kv.head_dim;
  const int64_t stored = 2 * rows * args.kv.kv_heads * d * dtype_info(args.kv.dtype).block_bytes;
  const int64_t queries = rows * args.query_heads * d * dtype_info(args.qkv.dtype).block_bytes;
  return row_op_cost(
      rows, args.qkv.columns(),
      bytes_of(args.qkv) + queries + stored + bytes_of(args.cos) + bytes_of(args.sin));
}

void rope_kv(OpContext& context, const RopeKvArgs& args) {
  check_args(context, args);
  if (args.qkv.rows() == 0) return;
  run_op(context, rope_kv_kernels(), args);
}

}  // namespace headrace
