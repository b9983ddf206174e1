#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <vector>

#include "ops/attention/select_blocks.h"
#include "ops/attention/select_keys_scores.h"
#include "ops/attention/sequence_choices.h"

namespace headrace {
namespace {

// Rows [first, first + count) of a sequence, each with `heads` heads that choose.
struct ScoredHeads {
  const SelectBlocksArgs& args;
  const AttentionSequence& sequence;
  int32_t first, count, heads;
  int64_t stride;     // of scores
  int64_t blocks;     // of the sequence
  float* scores;      // [count, heads, stride] by place
  uint64_t* choices;  // [count, heads, blocks]

  int32_t places() const {  // that some of these rows see
    return sequence.tree_rows > 0 ? sequence.kv_length : sequence.position(first + count - 1) + 1;
  }
};

// Of pooled blocks, whose heads have one score together.
template <void (*kScore)(const BlockScores&)>
void score_pooled(const ScoredHeads& run, int64_t page) {
  const SelectBlocksArgs& args = run.args;
  const std::vector<float> ones(static_cast<size_t>(args.heads()), 1.0f);
  const int32_t block = run.sequence.block_table[args.table_offset + page];
  for (int32_t i = 0; i < run.count; ++i) {
    kScore({.queries = f32_row(args.queries, int64_t{run.sequence.row_first} + run.first + i),
            .weights = ones.data(),
            .keys = index_head(args.kv, block).at,
            .scores = run.scores + i * run.stride + page * kScoredKeys,
            .query_stride = 0,
            .weight_stride = 0,
            .score_stride = run.stride,
            .rows = 1,
            .heads = args.heads(),
            .dim = args.kv.index_dim,
            .half = index_format(args.kv) == KvFormat::kF16});
  }
}

template <void (*kScore)(const BlockScores&)>
void score_pages(const ScoredHeads& run, int64_t first, int64_t last) {
  const SelectBlocksArgs& args = run.args;
  if (args.chosen.rule.pooled) {
    for (int64_t page = first; page < last; ++page) score_pooled<kScore>(run, page);
    return;
  }
  const int64_t row = int64_t{run.sequence.row_first} + run.first;
  for (int64_t page = first; page < last; ++page) {
    const int32_t block = run.sequence.block_table[args.table_offset + page];
    for (int32_t i = 0; i < run.count; ++i) {
      kScore({.queries = f32_row(args.queries, row + i),
              .weights = nullptr,
              .keys = index_head(args.kv, block).at,
              .scores = run.scores + i * run.heads * run.stride + page * kScoredKeys,
              .query_stride = args.kv.index_dim,
              .weight_stride = 0,
              .score_stride = run.stride,
              .rows = run.heads,
              .heads = 1,
              .dim = args.kv.index_dim,
              .half = index_format(args.kv) == KvFormat::kF16});
    }
  }
}

// Of a block's positions [first, end), as row r sees them.
float best_of(const AttentionSequence& sequence, int32_t r, const float* scores, int32_t first,
              int32_t end) {
  float best = -std::numeric_limits<float>::infinity();
  const int32_t in_order = sequence.path(r) == 0 ? end : std::min(end, sequence.tree_first());
  for (int32_t place = first; place < in_order; ++place) best = std::max(best, scores[place]);
  for (int32_t position = std::max(first, in_order); position < end; ++position) {
    best = std::max(best, scores[place_of(sequence, r, position)]);
  }
  return best;
}

void choose_blocks(const ScoredHeads& run, int32_t i, int32_t head) {
  const BlockRule& rule = run.args.chosen.rule;
  const AttentionSequence& sequence = run.sequence;
  const int32_t r = run.first + i, position = sequence.position(r);
  const int32_t seen = position / rule.tokens + 1, count = run.args.chosen.count(position);
  int32_t* const chosen = run.args.chosen.of(int64_t{sequence.row_first} + r, head);
  if (seen == count) {
    for (int32_t b = 0; b < seen; ++b) chosen[b] = b;
    return;
  }
  const int64_t at = int64_t{i} * run.heads + head;
  const float* const scores = run.scores + at * run.stride;
  uint64_t* const choices = run.choices + at * run.blocks;
  for (int32_t b = 0; b < seen; ++b) {
    const int32_t end = std::min(position + 1, (b + 1) * rule.tokens);
    const bool is_part = end < (b + 1) * rule.tokens;
    const int32_t first = rule.pooled ? end - 1 : b * rule.tokens;
    const float score = b + rule.local >= seen || (rule.pooled && is_part)
                            ? std::numeric_limits<float>::infinity()
                            : best_of(sequence, r, scores, first, end);
    choices[b] = choice_of(score, static_cast<uint32_t>(b));
  }
  std::nth_element(choices, choices + count - 1, choices + seen, std::greater<>());
  for (int32_t k = 0; k < count; ++k) chosen[k] = static_cast<int32_t>(position_of(choices[k]));
  std::sort(chosen, chosen + count);
}

template <void (*kScore)(const BlockScores&)>
void select_of_rows(OpContext& context, const ScoredHeads& run) {
  constexpr int64_t kPagesOfUnit = 16;
  if (run.places() > run.args.chosen.rule.keys_of_all()) {
    const int64_t pages = divide_up(run.places(), kScoredKeys);
    const int64_t units = divide_up(pages, kPagesOfUnit);
    context.device.pool().parallel_for(units, 1, [&](int64_t first, int64_t end) {
      score_pages<kScore>(run, first * kPagesOfUnit, std::min(pages, end * kPagesOfUnit));
    });
  }
  context.device.pool().parallel_for(run.count * run.heads, 1, [&](int64_t first, int64_t end) {
    for (int64_t n = first; n < end; ++n) {
      choose_blocks(run, static_cast<int32_t>(n / run.heads), static_cast<int32_t>(n % run.heads));
    }
  });
}

template <void (*kScore)(const BlockScores&)>
void select_all_blocks(OpContext& context, const SelectBlocksArgs& args) {
  const int32_t heads = args.choosing_heads();
  for (const AttentionSequence& sequence : args.sequences) {
    const int64_t stride = round_up(sequence.kv_length, kScoredKeys);
    const Workspace::Mark mark(context.workspace);
    auto* const scores = context.workspace.take_array<float>(kScoredRows * heads * stride);
    const int64_t blocks = args.chosen.rule.blocks_of(sequence.kv_length);
    auto* const choices = context.workspace.take_array<uint64_t>(kScoredRows * heads * blocks);
    for (int32_t first = 0; first < sequence.row_count; first += kScoredRows) {
      select_of_rows<kScore>(context, {.args = args,
                                       .sequence = sequence,
                                       .first = first,
                                       .count = std::min(kScoredRows, sequence.row_count - first),
                                       .heads = heads,
                                       .stride = stride,
                                       .blocks = blocks,
                                       .scores = scores,
                                       .choices = choices});
    }
  }
}

bool on_any_cpu(const DeviceTraits& traits, const SelectBlocksArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool on_avx512(const DeviceTraits& traits, const SelectBlocksArgs& args) {
  return on_any_cpu(traits, args) && traits.cpu.avx512;
}
bool on_avx2(const DeviceTraits& traits, const SelectBlocksArgs& args) {
  return on_any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kSelectBlocksKernels = {
    Kernel<SelectBlocksArgs>{"select_blocks/cpu/avx512", on_avx512,
                             select_all_blocks<score_block_avx512>},
    Kernel<SelectBlocksArgs>{"select_blocks/cpu/avx2", on_avx2,
                             select_all_blocks<score_block_avx2>},
    Kernel<SelectBlocksArgs>{"select_blocks/cpu/reference", on_any_cpu,
                             select_all_blocks<score_block_reference>},
};

}  // namespace

KernelTable<SelectBlocksArgs> select_blocks_cpu_kernels() { return kSelectBlocksKernels; }

}  // namespace headrace
