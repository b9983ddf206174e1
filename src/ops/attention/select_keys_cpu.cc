#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/attention/select_keys.h"
#include "ops/attention/select_keys_scores.h"
#include "ops/attention/sequence_choices.h"

namespace headrace {

// As it is written.
void score_block_reference(const BlockScores& block) {
  const DType dtype = block.half ? DType::kF16 : DType::kF32;
  for (int64_t r = 0; r < block.rows; ++r) {
    for (int64_t key = 0; key < kScoredKeys; ++key) {
      double score = 0.0;
      for (int64_t h = 0; h < block.heads; ++h) {
        const float* const q = block.queries + r * block.query_stride + h * block.dim;
        double product = 0.0;
        for (int64_t d = 0; d < block.dim; ++d) {
          const int64_t at = d * kScoredKeys + key;
          product += double{q[d]} * load_kv(dtype, block.keys + at * (block.half ? 2 : 4));
        }
        score += block.weights == nullptr
                     ? product
                     : block.weights[r * block.weight_stride + h] * std::max(product, 0.0);
      }
      block.scores[r * block.score_stride + key] = static_cast<float>(score);
    }
  }
}

namespace {

// Rows [first, first + count) of a sequence.
struct ScoredRun {
  const SelectKeysArgs& args;
  const AttentionSequence& sequence;
  int32_t first, count;
  int64_t stride;     // of scores and choices
  float* scores;      // [count, stride] by place
  uint64_t* choices;  // [count, stride]

  int32_t keys() const {  // that some of these rows see, in the order of their places
    if (sequence.tree_rows > 0) return sequence.kv_length;
    return args.chosen.seen(sequence.position(first + count - 1));
  }
};

// The place of the last token of those that share key `key`.
int32_t place_of_key(int32_t key, int32_t rate) { return (key + 1) * rate - 1; }

// Keys [16 b, 16 b + 16) that tokens share side by side, as they lie where each token has one.
class JoinedKeys {
 public:
  explicit JoinedKeys(const SelectKeysArgs& args)
      : args_(args),
        element_(dtype_info(kv_element(index_format(args.kv))).block_bytes),
        keys_(static_cast<size_t>(kScoredKeys * args.kv.index_dim * element_)) {}

  const std::byte* join(const AttentionSequence& sequence, int64_t b, int32_t keys) {
    const auto first = static_cast<int32_t>(b) * kScoredKeys;
    for (int32_t i = 0; i < std::min(keys - first, kScoredKeys); ++i) {
      const int32_t place = place_of_key(first + i, args_.kv.rate);
      const int32_t in_block = place % args_.kv.block_tokens;
      const int32_t block =
          sequence.block_table[args_.table_offset + place / args_.kv.block_tokens];
      const KvHeadView head = index_head(args_.kv, block);
      for (int32_t d = 0; d < head.dim; ++d) {
        std::memcpy(keys_.data() + (int64_t{d} * kScoredKeys + i) * element_,
                    head.number(in_block / args_.kv.rate, d), static_cast<size_t>(element_));
      }
    }
    return keys_.data();
  }

 private:
  const SelectKeysArgs& args_;
  const int64_t element_;
  std::vector<std::byte> keys_;  // [dim][16]
};

template <void (*kScore)(const BlockScores&)>
void score_blocks(const ScoredRun& run, int64_t first, int64_t last) {
  const SelectKeysArgs& args = run.args;
  const int64_t row = int64_t{run.sequence.row_first} + run.first;
  std::optional<JoinedKeys> joined;
  if (args.kv.rate > 1) joined.emplace(args);
  for (int64_t b = first; b < last; ++b) {
    const std::byte* const keys =
        joined ? joined->join(run.sequence, b, run.keys())
               : index_head(args.kv, run.sequence.block_table[args.table_offset + b]).at;
    kScore({.queries = f32_row(args.queries, row),
            .weights = f32_row(args.weights, row),
            .keys = keys,
            .scores = run.scores + b * kScoredKeys,
            .query_stride = args.queries.row_stride / 4,
            .weight_stride = args.weights.row_stride / 4,
            .score_stride = run.stride,
            .rows = run.count,
            .heads = static_cast<int32_t>(args.weights.columns()),
            .dim = args.kv.index_dim,
            .half = index_format(args.kv) == KvFormat::kF16});
  }
}

// The places that row r of a sequence sees, in the order of their positions, while there are few.
void take_all(const AttentionSequence& sequence, int32_t r, int32_t* places) {
  const uint64_t path = sequence.path(r);
  const int32_t before = path == 0 ? sequence.position(r) + 1 : sequence.tree_first();
  for (int32_t place = 0; place < before; ++place) places[place] = place;
  for_each_of_path(path, sequence.tree_first(),
                   [&](int32_t position, int32_t place) { places[position] = place; });
}

void choose(const ScoredRun& run, int32_t i) {
  const AttentionSequence& sequence = run.sequence;
  const ChosenPlaces& chosen = run.args.chosen;
  const int32_t r = run.first + i, seen = chosen.seen(sequence.position(r)), top = chosen.top;
  int32_t* const places = chosen.row(int64_t{sequence.row_first} + r);
  if (chosen.rate > 1 && seen <= top) {
    for (int32_t key = 0; key < seen; ++key) places[key] = place_of_key(key, chosen.rate);
    return;
  }
  if (seen <= top) return take_all(sequence, r, places);
  const float* const scores = run.scores + i * run.stride;
  uint64_t* const choices = run.choices + i * run.stride;
  const uint64_t path = sequence.path(r);
  const int32_t before = path == 0 ? seen : sequence.tree_first();
  for (int32_t place = 0; place < before; ++place) {
    choices[place] = choice_of(scores[place], static_cast<uint32_t>(place));
  }
  for_each_of_path(path, sequence.tree_first(), [&](int32_t position, int32_t place) {
    choices[position] = choice_of(scores[place], static_cast<uint32_t>(position));
  });
  std::nth_element(choices, choices + top - 1, choices + seen, std::greater<>());
  for (int32_t k = 0; k < top; ++k) places[k] = static_cast<int32_t>(position_of(choices[k]));
  std::sort(places, places + top);
  if (chosen.rate > 1) {
    for (int32_t k = 0; k < top; ++k) places[k] = place_of_key(places[k], chosen.rate);
  }
  if (path == 0) return;
  for (int32_t k = 0; k < top; ++k) places[k] = place_of(sequence, r, places[k]);
}

template <void (*kScore)(const BlockScores&)>
void select_run(OpContext& context, const ScoredRun& run) {
  constexpr int64_t kBlocksOfUnit = 16;
  if (run.keys() > run.args.chosen.top) {
    const int64_t blocks = (run.keys() + kScoredKeys - 1) / kScoredKeys;
    const int64_t units = (blocks + kBlocksOfUnit - 1) / kBlocksOfUnit;
    context.device.pool().parallel_for(units, 1, [&](int64_t first, int64_t end) {
      score_blocks<kScore>(run, first * kBlocksOfUnit, std::min(blocks, end * kBlocksOfUnit));
    });
  }
  context.device.pool().parallel_for(run.count, 1, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) choose(run, static_cast<int32_t>(i));
  });
}

template <void (*kScore)(const BlockScores&)>
void select_all(OpContext& context, const SelectKeysArgs& args) {
  for (const AttentionSequence& sequence : args.sequences) {
    const int64_t stride =
        (int64_t{sequence.kv_length} + kScoredKeys - 1) / kScoredKeys * kScoredKeys;
    const Workspace::Mark mark(context.workspace);
    auto* const scores = context.workspace.take_array<float>(kScoredRows * stride);
    auto* const choices = context.workspace.take_array<uint64_t>(kScoredRows * stride);
    for (int32_t first = 0; first < sequence.row_count; first += kScoredRows) {
      select_run<kScore>(context, {.args = args,
                                   .sequence = sequence,
                                   .first = first,
                                   .count = std::min(kScoredRows, sequence.row_count - first),
                                   .stride = stride,
                                   .scores = scores,
                                   .choices = choices});
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const SelectKeysArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const SelectKeysArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const SelectKeysArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kSelectKeysKernels = {
    Kernel<SelectKeysArgs>{"select_keys/cpu/avx512", avx512, select_all<score_block_avx512>},
    Kernel<SelectKeysArgs>{"select_keys/cpu/avx2", avx2, select_all<score_block_avx2>},
    Kernel<SelectKeysArgs>{"select_keys/cpu/reference", any_cpu, select_all<score_block_reference>},
};

}  // namespace

KernelTable<SelectKeysArgs> select_keys_cpu_kernels() { return kSelectKeysKernels; }

}  // namespace headrace
