#include "ops/attention/full_attention.h"

#include <algorithm>

#include <fmt/format.h>

#include "ops/attention/full_attention_head.h"

namespace headrace {
namespace {

void check_full_args(const FullAttentionArgs& args) {
  CHECK(args.head_dim > 0 && args.q.columns() % args.head_dim == 0);
  for (const ConstTensorView* rows : {&args.k, &args.v}) {
    CHECK(rows->shape == args.q.shape && rows->row_stride == args.q.row_stride);
  }
  CHECK(args.out.shape == args.q.shape && args.window >= 0);
  for (const RowSequence& sequence : args.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count >= 0);
    CHECK(int64_t{sequence.row_first} + sequence.row_count <= args.q.rows());
    CHECK(args.bias == nullptr || sequence.row_count <= args.bias_reach + 1);
  }
}

}  // namespace

const KernelSet<FullAttentionArgs>& full_attention_kernels() {
  static const KernelSet<FullAttentionArgs> set({full_attention_cpu_kernels()});
  return set;
}

OpCost op_cost(const FullAttentionArgs& args) {
  const int64_t heads = args.q.columns() / args.head_dim;
  int64_t pairs = 0;
  for (const RowSequence& sequence : args.sequences) {
    const int64_t rows = sequence.row_count;
    pairs += rows * (args.window > 0 ? std::min(rows, 2 * int64_t{args.window} + 1) : rows);
  }
  return {.shape = fmt::format("{} heads of {}, {} sequences", heads, args.head_dim,
                               args.sequences.size()),
          .rows = args.q.rows(),
          .bytes = 4 * bytes_of(args.q),
          .flops = 4 * pairs * heads * args.head_dim};
}

int64_t full_attention_scratch_floats(int32_t head_dim, int32_t rows) {
  const int64_t padded_rows = (int64_t{rows} + 15) / 16 * 16;
  const int64_t padded_dim = (int64_t{head_dim} + 15) / 16 * 16;
  return padded_rows * (2 * padded_dim + kFullAttentionTile);
}

int64_t full_attention_workspace_bytes(int thread_count, int32_t head_dim, int32_t length_max) {
  return thread_count * full_attention_scratch_floats(head_dim, length_max) *
         int64_t{sizeof(float)};
}

void full_attention(OpContext& context, const FullAttentionArgs& args) {
  check_full_args(args);
  if (args.q.rows() == 0 || args.sequences.empty()) return;
  run_op(context, full_attention_kernels(), args);
}

}  // namespace headrace
