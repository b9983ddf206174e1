#include "ops/attention/rope_attention.h"

namespace headrace {
namespace {

bool any(const DeviceTraits&, const RopeAttentionArgs&) { return true; }

void run_two_ops(OpContext& context, const RopeAttentionArgs& args) {
  rope_kv(context, args.rope);
  attention(context, args.attention);
}

constexpr Kernel<RopeAttentionArgs> kRopeAttentionTwoOps[] = {
    {"rope_attention/two_ops", any, run_two_ops}};

void check_args(const RopeAttentionArgs& args) {
  const RopeKvArgs& rope = args.rope;
  const ConstTensorView& q = args.attention.q;
  CHECK(q.data == rope.qkv.data && q.row_stride == rope.qkv.row_stride);
  CHECK((q.shape == Shape{rope.qkv.rows(), int64_t{rope.query_heads} * rope.kv.k_dim}));
  CHECK(args.attention.kv.base == rope.kv.base);
}

}  // namespace

const KernelSet<RopeAttentionArgs>& rope_attention_kernels() {
  static const KernelSet<RopeAttentionArgs> set(
      {rope_attention_cuda_kernels(), kRopeAttentionTwoOps});
  return set;
}

void rope_attention(OpContext& context, const RopeAttentionArgs& args) {
  check_args(args);
  const KernelSet<RopeAttentionArgs>& kernels = rope_attention_kernels();
  const Kernel<RopeAttentionArgs>& kernel = choose_kernel(context, kernels, args);
  kernel.run(context, args);
}

}  // namespace headrace
