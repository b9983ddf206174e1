#include "ops/attention/attention.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

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

const KernelSet<AttentionArgs>& attention_kernels() {
  static const KernelSet<AttentionArgs> set({attention_cuda_kernels(), attention_cpu_kernels()});
  return set;
}

OpCost op_cost(const AttentionArgs& args) {
  const int64_t d = args.kv.head_dim;
  const int64_t query_heads = args.q.columns() / d;
  int64_t keys = 0, pairs = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    const int64_t before = int64_t{sequence.kv_length} - sequence.row_count;
    const int64_t window = args.window > 0 ? args.window : int64_t{sequence.kv_length};
    // Row r sees min(before + r + 1, window) keys.
    const int64_t growing = std::clamp<int64_t>(window - before, 0, sequence.row_count);
    pairs +=
        growing * before + growing * (growing + 1) / 2 + (sequence.row_count - growing) * window;
    keys += std::min<int64_t>(sequence.kv_length, window + sequence.row_count - 1);
  }
  const int64_t kv_bytes = 2 * keys * args.kv.kv_heads * d * dtype_info(args.kv.dtype).block_bytes;
  std::string shape = fmt::format("{} of {} heads of {}", query_heads, args.kv.kv_heads, d);
  if (!args.sequences.empty()) shape += fmt::format(", {} sequences", args.sequences.size());
  return {.shape = std::move(shape),
          .rows = args.q.rows(),
          .bytes = kv_bytes + bytes_of(args.q) + bytes_of(args.out),
          .flops = 4 * pairs * query_heads * d};
}

void attention(OpContext& context, const AttentionArgs& args) {
  check_args(args);
  CHECK(is_activation(context.device, args.q.dtype));
  if (args.q.rows() == 0) return;
  run_op(context, attention_kernels(), args);
}

}  // namespace headrace
