#include "ops/attention/attention.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const AttentionArgs& args) {
  const int32_t k_dim = args.kv.k_dim, v_dim = args.kv.v_dim;
  CHECK(k_dim > 0 && v_dim > 0 && args.kv.kv_heads > 0 && args.kv.block_tokens > 0);
  CHECK(!args.kv.v_aliases_k || v_dim <= k_dim);
  CHECK(args.q.rows() == args.out.rows() && args.q.dtype == args.out.dtype);
  CHECK(args.q.columns() * v_dim == args.out.columns() * k_dim);
  CHECK(args.chunk == 0 || args.window == 0 || args.chunk <= args.window);
  CHECK_MSG(args.q.columns() % (int64_t{k_dim} * args.kv.kv_heads) == 0,
            "query heads must be a multiple of the key heads");
  if (args.relative.count > 0) {
    const RelativeBias& bias = args.relative;
    CHECK(bias.extent > 0 && bias.profiles != nullptr && args.soft_cap == 0);
    CHECK(bias.numbers.dtype == DType::kF32 && bias.numbers.rows() == args.q.rows());
    CHECK(bias.numbers.columns() * k_dim == args.q.columns() * bias.count);
  }
  for (const AttentionSequence& sequence : args.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count >= 0);
    CHECK(int64_t{sequence.row_first} + sequence.row_count <= args.q.rows());
    CHECK(sequence.kv_length >= sequence.row_count && sequence.block_table != nullptr);
    CHECK((sequence.paths != nullptr) == (sequence.tree_rows > 0));
    CHECK(sequence.tree_rows <= std::min(sequence.kv_length, kTreeRowsMax));
  }
}

}  // namespace

bool has_tree(const AttentionArgs& args) {
  return std::ranges::any_of(args.sequences,
                             [](const auto& sequence) { return sequence.tree_rows > 0; });
}

std::vector<float> relative_profiles(std::span<const float> profiles, int32_t count) {
  const auto extent = static_cast<int64_t>(profiles.size()) / count;
  std::vector<float> padded(static_cast<size_t>(count * (extent + 2 * kRelativePad)));
  for (int64_t i = 0; i < count; ++i) {
    const auto of_one =
        profiles.subspan(static_cast<size_t>(i * extent), static_cast<size_t>(extent));
    std::ranges::reverse_copy(of_one,
                              padded.begin() + i * (extent + 2 * kRelativePad) + kRelativePad);
  }
  return padded;
}

const KernelSet<AttentionArgs>& attention_kernels() {
  static const KernelSet<AttentionArgs> set({attention_cuda_kernels(), attention_cpu_kernels()});
  return set;
}

OpCost op_cost(const AttentionArgs& args) {
  const KvLayerView& kv = args.kv;
  const int64_t query_heads = args.q.columns() / kv.k_dim;
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
  const int64_t kv_bytes = keys * (k_part_bytes(kv) + v_part_bytes(kv)) / kv.block_tokens;
  std::string shape = fmt::format("{} of {} heads of {}", query_heads, kv.kv_heads, kv.k_dim);
  if (kv.v_dim != kv.k_dim) shape += fmt::format("/{}", kv.v_dim);
  if (!args.sequences.empty()) shape += fmt::format(", {} sequences", args.sequences.size());
  return {.shape = std::move(shape),
          .rows = args.q.rows(),
          .bytes = kv_bytes + bytes_of(args.q) + bytes_of(args.out),
          .flops = 2 * pairs * query_heads * (kv.k_dim + kv.v_dim)};
}

void attention(OpContext& context, const AttentionArgs& args) {
  check_args(args);
  CHECK(is_activation(context.device, args.q.dtype));
  const bool on_cpu = context.device.kind() == DeviceKind::kCpu;
  CHECK_MSG(on_cpu || !has_tree(args), "kernels of a GPU know no trees");
  CHECK_MSG(on_cpu || args.relative.count == 0, "kernels of a GPU know no biases of distances");
  if (args.q.rows() == 0) return;
  run_op(context, attention_kernels(), args);
}

}  // namespace headrace
