#include "ops/attention.h"

#include <vector>

namespace headrace {

namespace {

void check_args(const AttentionArgs& args) {
  const int32_t dim = args.kv.head_dim;
  CHECK(dim > 0 && args.kv.kv_heads > 0 && args.kv.block_tokens > 0);
  CHECK(args.q.shape == args.out.shape && args.q.dtype == args.out.dtype);
  CHECK_MSG(args.q.columns() % (int64_t{dim} * args.kv.kv_heads) == 0,
            "query heads must be a multiple of the key heads");
  for (const AttentionSequence& sequence : args.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count >= 0);
    CHECK(int64_t{sequence.row_first} + sequence.row_count <= args.q.rows());
    CHECK(sequence.kv_length >= sequence.row_count && sequence.block_table != nullptr);
  }
}

}  // namespace

KernelSet<AttentionArgs> attention_kernels() {
  static const std::vector<Kernel<AttentionArgs>> kernels =
      join_kernels({attention_cuda_kernels(), attention_cpu_kernels()});
  return KernelSet<AttentionArgs>(kernels);
}

void attention(OpContext& context, const AttentionArgs& args) {
  check_args(args);
  CHECK(is_activation(context.device, args.q.dtype));
  if (args.q.rows() == 0) return;
  attention_kernels().select(context.device, args).run(context, args);
}

}  // namespace headrace
