#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/attention/materialised.h"
#include "ops/attention/panels.h"
#include "ops/attention/tiles.h"

namespace headrace {
namespace {

struct KeyRange {
  int32_t first, last;  // [first, last) by position
};

// The keys that row r of a sequence sees.
KeyRange visible_keys(const AttentionArgs& args, const AttentionSequence& sequence, int32_t r) {
  const int32_t last = sequence.position(r) + 1;
  const int32_t in_window = args.window > 0 ? std::max(0, last - args.window) : 0;
  const int32_t in_chunk = args.chunk > 0 ? (last - 1) / args.chunk * args.chunk : 0;
  return {std::max(in_window, in_chunk), last};
}

// Of the keys that row r sees, by position.
std::vector<int64_t> slots_of(const AttentionArgs& args, const AttentionSequence& sequence,
                              KeyRange keys, int32_t r) {
  const int32_t* const table = sequence.block_table + args.table_offset;
  const int32_t block_tokens = args.kv.block_tokens;
  std::vector<int64_t> slots(static_cast<size_t>(keys.last - keys.first));
  const auto set = [&](int32_t position, int32_t place) {
    if (position < keys.first) return;
    slots[static_cast<size_t>(position - keys.first)] =
        int64_t{table[place / block_tokens]} * block_tokens + place % block_tokens;
  };
  const uint64_t path = sequence.path(r);
  const int32_t in_place_last = path == 0 ? keys.last : std::min(keys.last, sequence.tree_first());
  for (int32_t j = keys.first; j < in_place_last; ++j) set(j, j);
  for_each_of_path(path, sequence.tree_first(), set);
  return slots;
}

double score(const AttentionArgs& args, const float* q, int64_t slot, int32_t kv_head) {
  double sum = 0.0;
  for (int32_t d = 0; d < args.kv.k_dim; ++d) {
    sum += static_cast<double>(q[d]) * load_key(args.kv, slot, kv_head, d);
  }
  sum *= args.scale;
  return args.soft_cap > 0 ? args.soft_cap * std::tanh(sum / args.soft_cap) : sum;
}

// What the score of a key so far away gains.
double relative_bias(const RelativeBias& bias, int64_t row, int32_t head, int64_t distance) {
  if (distance >= bias.extent) return 0.0;
  const int64_t width = bias.extent + 2 * kRelativePad;
  const float* const profile = bias.profiles + kRelativePad + bias.extent - 1 - distance;
  double sum = 0.0;
  for (int32_t i = 0; i < bias.count; ++i) {
    sum += double{f32_row(bias.numbers, row)[head * bias.count + i]} * profile[i * width];
  }
  return sum;
}

// One row and head by the formula, with double sums. out: [v_dim].
void attend(const AttentionArgs& args, const std::vector<int64_t>& slots, int64_t row, int32_t head,
            float* out) {
  const float* const q = f32_row(args.q, row) + int64_t{head} * args.kv.k_dim;
  const KvLayerView& kv = args.kv;
  const int32_t kv_head = head / static_cast<int32_t>(args.q.columns() / kv.k_dim / kv.kv_heads);
  std::vector<double> weights(slots.size());
  for (size_t j = 0; j < slots.size(); ++j) {
    const auto distance = static_cast<int64_t>(slots.size() - 1 - j);
    weights[j] = score(args, q, slots[j], kv_head);
    if (args.slopes != nullptr) {
      weights[j] -= double{args.slopes[head]} * static_cast<double>(distance);
    }
    if (args.relative.count > 0) weights[j] += relative_bias(args.relative, row, head, distance);
  }
  double largest = *std::max_element(weights.begin(), weights.end());
  if (args.sinks != nullptr) largest = std::max(largest, double{args.sinks[head]});
  double total = args.sinks != nullptr ? std::exp(args.sinks[head] - largest) : 0.0;
  for (double& w : weights) total += (w = std::exp(w - largest));
  std::vector<double> sums(static_cast<size_t>(kv.v_dim), 0.0);
  for (size_t j = 0; j < slots.size(); ++j) {
    for (int32_t d = 0; d < kv.v_dim; ++d) {
      sums[static_cast<size_t>(d)] += weights[j] * load_value(kv, slots[j], kv_head, d);
    }
  }
  for (int32_t d = 0; d < kv.v_dim; ++d) {
    out[d] = static_cast<float>(sums[static_cast<size_t>(d)] / total);
  }
}

void reference(OpContext& context, const AttentionArgs& args) {
  const int32_t k_dim = args.kv.k_dim, v_dim = args.kv.v_dim;
  const int32_t heads = static_cast<int32_t>(args.q.columns() / k_dim);
  for (const AttentionSequence& sequence : args.sequences) {
    const int64_t items = int64_t{sequence.row_count} * heads;
    context.device.pool().parallel_for(items, 1, [&](int64_t first, int64_t last) {
      for (int64_t item = first; item < last; ++item) {
        const int32_t r = static_cast<int32_t>(item / heads);
        const int32_t head = static_cast<int32_t>(item % heads);
        const int64_t row = sequence.row_first + r;
        attend(args, slots_of(args, sequence, visible_keys(args, sequence, r), r), row, head,
               f32_row(args.out, row) + int64_t{head} * v_dim);
      }
    });
  }
}

bool any_cpu(const DeviceTraits& traits, const AttentionArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const AttentionArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512 && fits_attention_tiles(args);
}
bool avx2(const DeviceTraits& traits, const AttentionArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2 && fits_attention_tiles(args);
}

// By panels, where a row's bits may depend on what else is in its batch: rows of short sequences
// are summed in f32.
bool avx512_bf16(const DeviceTraits& traits, const AttentionArgs& args) {
  return avx512(traits, args) && traits.cpu.avx512_bf16 && !traits.batch_invariant &&
         !args.f32_products && fits_attention_panels(args);
}
bool amx(const DeviceTraits& traits, const AttentionArgs& args) {
  return avx512_bf16(traits, args) && traits.cpu.amx_bf16;
}

void run_amx(OpContext& context, const AttentionArgs& args) {
  run_attention_panels(context, args, attend_panel_amx, attend_split_avx512);
}
void run_avx512_bf16(OpContext& context, const AttentionArgs& args) {
  run_attention_panels(context, args, attend_panel_avx512_bf16, attend_split_avx512);
}
void run_avx512(OpContext& context, const AttentionArgs& args) {
  run_attention_tiles(context, args, attend_split_avx512);
}
void run_avx2(OpContext& context, const AttentionArgs& args) {
  run_attention_tiles(context, args, attend_split_avx2);
}

// Baselines that only a measurement asks for by name.
bool materialised(const DeviceTraits& traits, const AttentionArgs& args) {
  return avx512(traits, args) && fits_materialised_attention(args);
}
void run_avx512_unsplit(OpContext& context, const AttentionArgs& args) {
  run_attention_tiles(context, args, attend_split_avx512, KeySplits::kOneAfterTheOther);
}

constexpr std::array kAttentionKernels = {
    Kernel<AttentionArgs>{"attention/cpu/amx", amx, run_amx},
    Kernel<AttentionArgs>{"attention/cpu/avx512", avx512, run_avx512},
    Kernel<AttentionArgs>{"attention/cpu/avx2", avx2, run_avx2},
    Kernel<AttentionArgs>{"attention/cpu/avx512_bf16", avx512_bf16, run_avx512_bf16,
                          Selection::kByName},
    Kernel<AttentionArgs>{"attention/cpu/avx512_unsplit", avx512, run_avx512_unsplit,
                          Selection::kByName},
    Kernel<AttentionArgs>{"attention/cpu/materialised", materialised, run_materialised_attention,
                          Selection::kByName},
    Kernel<AttentionArgs>{"attention/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<AttentionArgs> attention_cpu_kernels() { return kAttentionKernels; }

}  // namespace headrace
