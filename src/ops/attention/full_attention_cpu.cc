#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <vector>

#include "ops/attention/full_attention.h"
#include "ops/attention/full_attention_head.h"

namespace headrace {
namespace {

const float* bias_of_head(const FullAttentionArgs& args, int64_t head) {
  if (args.bias == nullptr) return nullptr;
  return args.bias + head * (2 * int64_t{args.bias_reach} + 1) + args.bias_reach;
}

FullAttentionHead head_of(const FullAttentionArgs& args, const RowSequence& sequence,
                          int64_t head) {
  const int64_t first = sequence.row_first, column = head * args.head_dim;
  return {.q = f32_row(args.q, first) + column,
          .k = f32_row(args.k, first) + column,
          .v = f32_row(args.v, first) + column,
          .out = f32_row(args.out, first) + column,
          .stride = args.q.row_stride / int64_t{sizeof(float)},
          .out_stride = args.out.row_stride / int64_t{sizeof(float)},
          .rows = sequence.row_count,
          .head_dim = args.head_dim,
          .scale = args.scale,
          .bias = bias_of_head(args, head),
          .window = args.window,
          .scratch = nullptr};
}

// Row i of a head by the formula, with double sums.
void attend_row(const FullAttentionHead& head, int64_t i) {
  const int64_t first = head.window > 0 ? std::max<int64_t>(0, i - head.window) : 0;
  const int64_t last =
      head.window > 0 ? std::min<int64_t>(head.rows, i + head.window + 1) : int64_t{head.rows};
  std::vector<double> weights(static_cast<size_t>(head.rows));
  for (int64_t j = first; j < last; ++j) {
    double sum = 0.0;
    for (int64_t d = 0; d < head.head_dim; ++d) {
      sum += double{head.q[i * head.stride + d]} * head.k[j * head.stride + d];
    }
    weights[static_cast<size_t>(j)] =
        sum * head.scale + (head.bias == nullptr ? 0.0f : head.bias[j - i]);
  }
  const double largest = *std::max_element(weights.begin() + first, weights.begin() + last);
  double total = 0.0;
  for (int64_t j = first; j < last; ++j) {
    double& weight = weights[static_cast<size_t>(j)];
    total += (weight = std::exp(weight - largest));
  }
  for (int64_t d = 0; d < head.head_dim; ++d) {
    double sum = 0.0;
    for (int64_t j = first; j < last; ++j) {
      sum += weights[static_cast<size_t>(j)] * head.v[j * head.stride + d];
    }
    head.out[i * head.out_stride + d] = static_cast<float>(sum / total);
  }
}

void full_reference(OpContext&, const FullAttentionArgs& args) {
  for (const RowSequence& sequence : args.sequences) {
    for (int64_t h = 0; h < args.q.columns() / args.head_dim; ++h) {
      const FullAttentionHead head = head_of(args, sequence, h);
      for (int64_t i = 0; i < head.rows; ++i) attend_row(head, i);
    }
  }
}

// A head of a sequence is a piece of work; threads take the next one that is left.
template <void (*kAttend)(const FullAttentionHead&)>
void run_heads(OpContext& context, const FullAttentionArgs& args) {
  const int64_t heads = args.q.columns() / args.head_dim;
  const auto pieces = static_cast<int64_t>(args.sequences.size()) * heads;
  int32_t longest = 0;
  for (const RowSequence& sequence : args.sequences) {
    longest = std::max(longest, sequence.row_count);
  }
  const Workspace::Mark mark(context.workspace);
  const int64_t floats = full_attention_scratch_floats(args.head_dim, longest);
  float* const scratch =
      context.workspace.take_array<float>(floats * context.device.pool().thread_count());
  std::atomic<int64_t> next{0};
  context.device.pool().run([&](int thread) {
    for (int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
      const auto sequence = static_cast<size_t>(piece / heads);
      FullAttentionHead head = head_of(args, args.sequences[sequence], piece % heads);
      head.scratch = scratch + thread * floats;
      if (head.rows > 0) kAttend(head);
    }
  });
}

bool full_any_cpu(const DeviceTraits& traits, const FullAttentionArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.q.dtype == DType::kF32;
}
bool full_avx512(const DeviceTraits& traits, const FullAttentionArgs& args) {
  return full_any_cpu(traits, args) && traits.cpu.avx512;
}
bool full_avx2(const DeviceTraits& traits, const FullAttentionArgs& args) {
  return full_any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kFullKernels = {
    Kernel<FullAttentionArgs>{"full_attention/cpu/avx512", full_avx512,
                              run_heads<attend_full_avx512>},
    Kernel<FullAttentionArgs>{"full_attention/cpu/avx2", full_avx2, run_heads<attend_full_avx2>},
    Kernel<FullAttentionArgs>{"full_attention/cpu/reference", full_any_cpu, full_reference},
};

}  // namespace

KernelTable<FullAttentionArgs> full_attention_cpu_kernels() { return kFullKernels; }

}  // namespace headrace
