#include "ops/attention/select_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "ops/attention/kv_numbers.h"
#include "ops/op_fixture.h"

namespace headrace::select_blocks_test {
namespace {

constexpr int32_t kHeads = 3, kDim = 20, kTokens = 75, kPages = 6, kTableOffset = 3;
using Chosen = std::vector<std::vector<int32_t>>;  // [rows heads]

// Those that this machine runs.
std::vector<Kernel<SelectBlocksArgs>> kernels_here() {
  TestDevice device = TestDevice::cpu(1);
  std::vector<Kernel<SelectBlocksArgs>> kernels;
  for (const auto& kernel : select_blocks_kernels().all()) {
    if (kernel.supports(device.device().traits(), {})) kernels.push_back(kernel);
  }
  return kernels;
}

// A sequence of kTokens, in pages that are not in order; queries of each.
class SelectBlocksSetting {
 public:
  explicit SelectBlocksSetting(const BlockRule& of, KvFormat format = KvFormat::kF32)
      : rule(of), queries(rng_, kTokens, int64_t{kHeads} * kDim) {
    kv = {.k_format = format, .v_format = format, .kv_heads = kHeads, .k_dim = 8, .v_dim = 6};
    kv.index_dim = kDim;
    kv.v_offset = k_part_bytes(kv);
    kv.index_offset = kv.v_offset + v_part_bytes(kv);
    kv.block_stride = layer_part_bytes(kv);
    memory_.resize(static_cast<size_t>(kPages * kv.block_stride), std::byte{0xff});  // NaN
    kv.base = memory_.data();
    for (int32_t b = 0; b < kPages; ++b) table.push_back(kPages - 1 - b);
    table.insert(table.begin(), kTableOffset, 1 << 28);
    for (int32_t t = 0; t < kTokens; ++t) keep(t, random_floats(rng_, kDim));
  }

  void keep(int32_t place, const std::vector<float>& key) {
    const auto at = static_cast<size_t>(kTableOffset + place / 16);
    store_index_key(kv, int64_t{table[at]} * 16 + place % 16, key.data());
  }
  // Rows [first, first + count) in one step.
  Chosen run(const Kernel<SelectBlocksArgs>& kernel, int32_t first, int32_t count,
             std::span<const uint64_t> paths = {}) {
    TestDevice device = TestDevice::cpu(3);
    OpContext context = device.context();
    const int64_t stride = int64_t{kHeads} * rule.top + 2;
    std::vector<int32_t> blocks(static_cast<size_t>(count * stride), -7);
    const AttentionSequence sequence{.row_first = 0,
                                     .row_count = count,
                                     .kv_length = first + count,
                                     .block_table = table.data(),
                                     .paths = paths.empty() ? nullptr : paths.data(),
                                     .tree_rows = static_cast<int32_t>(paths.size())};
    const SelectBlocksArgs args{.queries = queries.view().row_range(first, count),
                                .kv = kv,
                                .sequences = {&sequence, 1},
                                .table_offset = kTableOffset,
                                .chosen = {.front = blocks.data(), .stride = stride, .rule = rule}};
    kernel.run(context, args);
    Chosen all;
    for (int32_t r = 0; r < count; ++r) {
      for (int32_t h = 0; h < kHeads; ++h) {
        const int32_t* const of = args.chosen.of(r, h);
        all.emplace_back(of, of + args.chosen.count(sequence.position(r)));
      }
      const int64_t written = int64_t{args.choosing_heads()} * rule.top;
      EXPECT_EQ(blocks[static_cast<size_t>(r * stride + written)], -7) << "beyond a row's blocks";
    }
    return all;
  }
  // What a head of row t chooses of the places it sees, in doubles.
  std::vector<int32_t> expected(int32_t t, int32_t head, const std::vector<int32_t>& seen) {
    const auto positions = static_cast<int32_t>(seen.size());
    const int32_t blocks = (positions + rule.tokens - 1) / rule.tokens;
    std::vector<double> scores(static_cast<size_t>(blocks),
                               -std::numeric_limits<double>::infinity());
    for (int32_t p = 0; p < positions; ++p) {
      double& score = scores[static_cast<size_t>(p / rule.tokens)];
      score = std::max(score, product(t, head, seen[static_cast<size_t>(p)]));
    }
    for (int32_t b = std::max(0, blocks - rule.local); b < blocks; ++b) {
      scores[static_cast<size_t>(b)] = std::numeric_limits<double>::infinity();
    }
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    order.resize(std::min(order.size(), static_cast<size_t>(rule.top)));
    std::ranges::sort(order);
    return order;
  }
  std::vector<int32_t> expected_of_pooled(int32_t t, const std::vector<int32_t>& seen) {
    const auto whole = static_cast<int32_t>(seen.size()) / rule.tokens;
    std::vector<std::pair<double, int32_t>> scores;
    for (int32_t b = 0; b < whole; ++b) {
      double score = 0;
      for (int32_t h = 0; h < kHeads; ++h) {
        score += std::max(product(t, h, seen[static_cast<size_t>((b + 1) * rule.tokens - 1)]), 0.0);
      }
      scores.emplace_back(-score, b);
    }
    std::ranges::sort(scores);
    scores.resize(std::min(scores.size(), static_cast<size_t>(rule.top - 1)));
    std::vector<int32_t> chosen;
    for (const auto& [score, b] : scores) chosen.push_back(b);
    std::ranges::sort(chosen);
    if (static_cast<int32_t>(seen.size()) % rule.tokens != 0) chosen.push_back(whole);
    return chosen;
  }
  static std::vector<int32_t> places_before(int32_t end) {
    std::vector<int32_t> places(static_cast<size_t>(end));
    std::iota(places.begin(), places.end(), 0);
    return places;
  }

  const BlockRule rule;
  KvLayerView kv;
  std::vector<int32_t> table;

 private:
  double product(int32_t t, int32_t head, int32_t place) {
    const KvHeadView keys = index_head(kv, table[static_cast<size_t>(kTableOffset + place / 16)]);
    double sum = 0;
    for (int32_t d = 0; d < kDim; ++d) {
      sum += double{queries.at(t, head * kDim + d)} * load_number(keys, place % 16, d);
    }
    return sum;
  }

  Rng rng_{7};
  std::vector<std::byte> memory_;

 public:
  TestMatrix queries;
};

constexpr BlockRule kRules[] = {{4, 3, 1}, {16, 2, 1}, {5, 4, 2}, {4, 3, 0}, {7, 2, 2}, {1, 9, 3}};

TEST(SelectBlocks, EveryKernelChoosesTheBlocksOfTheLargestScores) {
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8}) {
    for (const BlockRule& rule : kRules) {
      SelectBlocksSetting setting(rule, format);
      for (const auto& kernel : kernels_here()) {
        SCOPED_TRACE(kernel.name);
        const Chosen chosen = setting.run(kernel, 0, kTokens);
        for (int32_t t = 0; t < kTokens; ++t) {
          const std::vector<int32_t> seen = setting.places_before(t + 1);
          for (int32_t h = 0; h < kHeads; ++h) {
            EXPECT_EQ(chosen[static_cast<size_t>(t * kHeads + h)], setting.expected(t, h, seen))
                << t << " " << h;
          }
        }
      }
    }
  }
}

TEST(SelectBlocks, TheChoiceDoesNotDependOnTheSteps) {
  SelectBlocksSetting setting({4, 5, 1});
  for (const auto& kernel : kernels_here()) {
    SCOPED_TRACE(kernel.name);
    const Chosen whole = setting.run(kernel, 0, kTokens);
    for (const int32_t step : {1, 7, 20}) {
      for (int32_t first = 0; first < kTokens; first += step) {
        const int32_t count = std::min(step, kTokens - first);
        const Chosen cut = setting.run(kernel, first, count);
        EXPECT_TRUE(std::ranges::equal(
            cut, std::span(whole).subspan(static_cast<size_t>(first * kHeads), cut.size())));
      }
    }
  }
}

TEST(SelectBlocks, OfEqualScoresTheFirstInTheTextAreChosen) {
  SelectBlocksSetting setting({4, 4, 1});
  for (int32_t place = 0; place < kTokens; ++place) {
    setting.keep(place, std::vector<float>(kDim, place % 2 == 0 ? 0.0f : -0.0f));
  }
  for (const auto& kernel : kernels_here()) {
    const Chosen chosen = setting.run(kernel, 0, kTokens);
    EXPECT_EQ(chosen.back(), (std::vector<int32_t>{0, 1, 2, (kTokens - 1) / 4}));
  }
}

// A row of a tree sees what lies before the tree and its own path, whose positions follow.
TEST(SelectBlocks, RowsOfATreeChooseOfTheirPaths) {
  const uint64_t paths[] = {0b1, 0b11, 0b101, 0b1101, 0b10011, 0b110011};
  constexpr int32_t kTree = 6, kFirst = kTokens - kTree - 2;
  for (const BlockRule& rule : kRules) {
    SelectBlocksSetting setting(rule);
    for (const auto& kernel : kernels_here()) {
      SCOPED_TRACE(kernel.name);
      const Chosen chosen = setting.run(kernel, kFirst, kTree + 2, paths);
      for (int32_t r = 0; r < kTree; ++r) {
        std::vector<int32_t> seen = setting.places_before(kFirst + 2);
        for (int32_t j = 0; j < kTree; ++j) {
          if ((paths[r] >> j & 1) != 0) seen.push_back(kFirst + 2 + j);
        }
        for (int32_t h = 0; h < kHeads; ++h) {
          EXPECT_EQ(chosen[static_cast<size_t>((2 + r) * kHeads + h)],
                    setting.expected(kFirst + 2 + r, h, seen))
              << r << " " << h;
        }
      }
    }
  }
}

// Heads choose together, of blocks that a row sees whole, each of which has the one key that lies
// where its last token's does; what is behind these comes on top.
TEST(SelectBlocks, PooledBlocksAreChosenByAllHeadsTogether) {
  for (const BlockRule& rule :
       {BlockRule{4, 4, 0, true}, {16, 3, 0, true}, {7, 2, 0, true}, {1, 9, 0, true}}) {
    SelectBlocksSetting setting(rule);
    for (const auto& kernel : kernels_here()) {
      SCOPED_TRACE(kernel.name);
      const Chosen chosen = setting.run(kernel, 0, kTokens);
      for (int32_t t = 0; t < kTokens; ++t) {
        EXPECT_EQ(chosen[static_cast<size_t>(t * kHeads)],
                  setting.expected_of_pooled(t, setting.places_before(t + 1)))
            << t;
      }
      EXPECT_EQ(setting.run(kernel, 41, 3).front(), chosen[41 * kHeads]);
    }
  }
}

TEST(SelectBlocks, RowsOfATreeChooseOfPooledBlocksOfTheirPaths) {
  const uint64_t paths[] = {0b1, 0b11, 0b101, 0b1101, 0b10011, 0b110011};
  constexpr int32_t kTree = 6, kFirst = kTokens - kTree - 2;
  SelectBlocksSetting setting({3, 4, 0, true});
  for (const auto& kernel : kernels_here()) {
    const Chosen chosen = setting.run(kernel, kFirst, kTree + 2, paths);
    for (int32_t r = 0; r < kTree; ++r) {
      std::vector<int32_t> seen = setting.places_before(kFirst + 2);
      for (int32_t j = 0; j < kTree; ++j) {
        if ((paths[r] >> j & 1) != 0) seen.push_back(kFirst + 2 + j);
      }
      EXPECT_EQ(chosen[static_cast<size_t>((2 + r) * kHeads)],
                setting.expected_of_pooled(kFirst + 2 + r, seen))
          << r;
    }
  }
}

// Numbers that are none have a place in the order: nothing is read or written elsewhere.
TEST(SelectBlocks, ScoresThatAreNoNumbersDoNoHarm) {
  SelectBlocksSetting setting({4, 3, 1});
  setting.queries.at(40, 3) = std::numeric_limits<float>::quiet_NaN();
  for (const auto& kernel : kernels_here()) {
    const Chosen chosen = setting.run(kernel, 30, 20);
    EXPECT_TRUE(std::ranges::is_sorted(chosen[10 * kHeads]));
    EXPECT_EQ(chosen[10 * kHeads].back(), 10);
  }
}

}  // namespace
}  // namespace headrace::select_blocks_test
