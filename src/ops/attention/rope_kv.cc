#include "ops/attention/rope_kv.h"

namespace headrace {
namespace {

void check_args(const OpContext& context, const RopeKvArgs& args) {
  const int64_t tokens = args.qkv.rows();
  const KvLayerView& kv = args.kv;
  const int64_t rotated = (int64_t{args.query_heads} + kv.kv_heads) * kv.k_dim;
  CHECK(is_activation(context.device, args.qkv.dtype));
  CHECK((args.qkv.shape == Shape{tokens, rotated + int64_t{kv.kv_heads} * kv.v_dim}));
  CHECK_MSG(!kv.v_aliases_k, "values that are part of keys are written with them");
  CHECK(args.cos.dtype == DType::kF32 && args.sin.dtype == DType::kF32);
  CHECK(args.cos.shape == args.sin.shape && args.cos.rows() == tokens);
  CHECK(2 * args.cos.columns() <= kv.k_dim);
  CHECK(static_cast<int64_t>(args.slots.size()) == tokens);
  CHECK(args.q_norm == nullptr || args.k_norm != nullptr);
}

}  // namespace

const KernelSet<RopeKvArgs>& rope_kv_kernels() {
  static const KernelSet<RopeKvArgs> set({rope_kv_cuda_kernels(), rope_kv_cpu_kernels()});
  return set;
}

OpCost op_cost(const RopeKvArgs& args) {
  // Queries are rotated in place, keys and values go to the cache.
  const KvLayerView& kv = args.kv;
  const int64_t rows = args.qkv.rows();
  const int64_t stored = rows * (k_part_bytes(kv) + v_part_bytes(kv)) / kv.block_tokens;
  const int64_t queries =
      rows * args.query_heads * kv.k_dim * dtype_info(args.qkv.dtype).block_bytes;
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
