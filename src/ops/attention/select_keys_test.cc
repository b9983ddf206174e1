#include "ops/attention/select_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/attention/kv_numbers.h"
#include "ops/op_fixture.h"

namespace headrace::select_keys_test {
namespace {

constexpr int32_t kHeads = 6, kDim = 20, kTop = 9, kTokens = 75, kBlocks = 6, kTableOffset = 3;

// Those that this machine runs.
std::vector<Kernel<SelectKeysArgs>> kernels_here() {
  TestDevice device = TestDevice::cpu(1);
  std::vector<Kernel<SelectKeysArgs>> kernels;
  for (const auto& kernel : select_keys_kernels().all()) {
    if (kernel.supports(device.device().traits(), {})) kernels.push_back(kernel);
  }
  return kernels;
}

// A sequence of kTokens, in blocks that are not in order; queries and weights of each.
class SelectTest {
 public:
  explicit SelectTest(KvFormat format = KvFormat::kF32)
      : queries(rng_, kTokens, int64_t{kHeads} * kDim), weights(rng_, kTokens, kHeads) {
    kv = {.k_format = format,
          .v_aliases_k = true,
          .kv_heads = 1,
          .k_dim = 8,
          .v_dim = 6,
          .index_dim = kDim};
    kv.index_offset = k_part_bytes(kv);
    kv.block_stride = layer_part_bytes(kv);
    memory_.resize(static_cast<size_t>(kBlocks * kv.block_stride), std::byte{0xff});  // NaN
    kv.base = memory_.data();
    for (int32_t b = 0; b < kBlocks; ++b) table.push_back(kBlocks - 1 - b);
    table.insert(table.begin(), kTableOffset, 1 << 28);
    for (int32_t t = 0; t < kTokens; ++t) keep(t, random_floats(rng_, kDim));
  }

  void keep(int32_t place, const std::vector<float>& key) {
    const auto at = static_cast<size_t>(kTableOffset + place / 16);
    store_index_key(kv, int64_t{table[at]} * 16 + place % 16, key.data());
  }
  // Rows [first, first + count) in one step: the places of each.
  std::vector<std::vector<int32_t>> run(const Kernel<SelectKeysArgs>& kernel, int32_t first,
                                        int32_t count, std::span<const uint64_t> paths = {}) {
    TestDevice device = TestDevice::cpu(3);
    OpContext context = device.context();
    std::vector<int32_t> places(static_cast<size_t>(count) * (kTop + 2), -7);
    const AttentionSequence sequence{.row_first = 0,
                                     .row_count = count,
                                     .kv_length = first + count,
                                     .block_table = table.data(),
                                     .paths = paths.empty() ? nullptr : paths.data(),
                                     .tree_rows = static_cast<int32_t>(paths.size())};
    const SelectKeysArgs args{.queries = queries.view().row_range(first, count),
                              .weights = weights.view().row_range(first, count),
                              .kv = kv,
                              .sequences = {&sequence, 1},
                              .table_offset = kTableOffset,
                              .chosen = {.front = places.data(), .stride = kTop + 2, .top = kTop}};
    kernel.run(context, args);
    std::vector<std::vector<int32_t>> rows;
    for (int32_t r = 0; r < count; ++r) {
      const int32_t* const row = args.chosen.row(r);
      rows.emplace_back(row, row + args.chosen.count(sequence.position(r)));
      for (int32_t k = static_cast<int32_t>(rows.back().size()); k < kTop + 2; ++k) {
        EXPECT_EQ(row[k], -7) << "beyond a row's places";
      }
    }
    return rows;
  }
  // What row t chooses of the places it sees, in doubles.
  std::vector<int32_t> expected(int32_t t, std::vector<int32_t> seen) {
    std::vector<double> scores;
    for (const int32_t place : seen) scores.push_back(score(t, place));
    std::vector<size_t> order(seen.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(std::min<size_t>(order.size(), kTop));
    std::ranges::sort(order);
    std::vector<int32_t> chosen;
    for (const size_t at : order) chosen.push_back(seen[at]);
    return chosen;
  }
  static std::vector<int32_t> places_before(int32_t end) {
    std::vector<int32_t> places(static_cast<size_t>(end));
    std::iota(places.begin(), places.end(), 0);
    return places;
  }

  KvLayerView kv;
  std::vector<int32_t> table;

 private:
  double score(int32_t t, int32_t place) {
    const KvHeadView keys = index_head(kv, table[static_cast<size_t>(kTableOffset + place / 16)]);
    double sum = 0;
    for (int32_t h = 0; h < kHeads; ++h) {
      double product = 0;
      for (int32_t d = 0; d < kDim; ++d) {
        product += double{queries.at(t, h * kDim + d)} * load_number(keys, place % 16, d);
      }
      sum += weights.at(t, h) * std::max(product, 0.0);
    }
    return sum;
  }

  Rng rng_{7};
  std::vector<std::byte> memory_;

 public:
  TestMatrix queries, weights;
};

TEST(SelectKeys, EveryKernelChoosesTheLargestScoresOfWhatARowSees) {
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8}) {
    SelectTest test(format);
    for (const auto& kernel : kernels_here()) {
      SCOPED_TRACE(kernel.name);
      const auto rows = test.run(kernel, 0, kTokens);
      for (int32_t t = 0; t < kTokens; ++t) {
        EXPECT_EQ(rows[static_cast<size_t>(t)], test.expected(t, test.places_before(t + 1))) << t;
      }
    }
  }
}

TEST(SelectKeys, TheChoiceDoesNotDependOnTheSteps) {
  SelectTest test;
  for (const auto& kernel : kernels_here()) {
    SCOPED_TRACE(kernel.name);
    const auto whole = test.run(kernel, 0, kTokens);
    for (const int32_t step : {1, 7, 20}) {
      for (int32_t first = 0; first < kTokens; first += step) {
        const int32_t count = std::min(step, kTokens - first);
        const auto cut = test.run(kernel, first, count);
        for (int32_t r = 0; r < count; ++r) {
          EXPECT_EQ(cut[static_cast<size_t>(r)], whole[static_cast<size_t>(first + r)]);
        }
      }
    }
  }
}

// Keys that no head finds anything in have the score 0, each of them.
TEST(SelectKeys, OfEqualScoresTheFirstInTheTextAreChosen) {
  SelectTest test;
  for (int32_t place = 3; place < kTokens; ++place) {
    test.keep(place, std::vector<float>(kDim, place % 2 == 0 ? 0.0f : -0.0f));
  }
  for (const auto& kernel : kernels_here()) {
    SCOPED_TRACE(kernel.name);
    const auto rows = test.run(kernel, 0, kTokens);
    for (int32_t t = 20; t < kTokens; ++t) {
      EXPECT_EQ(rows[static_cast<size_t>(t)], test.expected(t, test.places_before(t + 1))) << t;
    }
  }
}

// A row of a tree sees what lies before the tree and its own path, whose positions follow.
TEST(SelectKeys, RowsOfATreeChooseOfTheirPaths) {
  SelectTest test;
  const uint64_t paths[] = {0b1, 0b11, 0b101, 0b1101, 0b10011, 0b110011};
  constexpr int32_t kTree = 6, kFirst = kTokens - kTree - 2;
  for (const auto& kernel : kernels_here()) {
    SCOPED_TRACE(kernel.name);
    const auto rows = test.run(kernel, kFirst, kTree + 2, paths);
    for (int32_t r = 0; r < kTree; ++r) {
      std::vector<int32_t> seen = test.places_before(kFirst + 2);
      for (int32_t j = 0; j < kTree; ++j) {
        if ((paths[r] >> j & 1) != 0) seen.push_back(kFirst + 2 + j);
      }
      EXPECT_EQ(rows[static_cast<size_t>(2 + r)], test.expected(kFirst + 2 + r, seen)) << r;
    }
  }
}

// All rows of it see few keys: none is scored.
TEST(SelectKeys, RowsOfASmallTreeHaveTheirWholePaths) {
  SelectTest test;
  const uint64_t paths[] = {0b1, 0b11, 0b101};
  for (const auto& kernel : kernels_here()) {
    const auto rows = test.run(kernel, 4, 3, paths);
    EXPECT_EQ(rows[0], (std::vector<int32_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(rows[1], (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(rows[2], (std::vector<int32_t>{0, 1, 2, 3, 4, 6}));
  }
}

// Numbers that are none have a place in the order: nothing is read or written elsewhere.
TEST(SelectKeys, ScoresThatAreNoNumbersDoNoHarm) {
  SelectTest test;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int32_t h = 0; h < kHeads; ++h) test.weights.at(40, h) = nan;
  for (const auto& kernel : kernels_here()) {
    const auto rows = test.run(kernel, 30, 20);
    EXPECT_TRUE(std::ranges::is_sorted(rows[10]));
    EXPECT_EQ(rows[10].size(), size_t{kTop});
    EXPECT_LE(rows[10].back(), 40);
  }
}

// Of keys that several tokens share, those whose tokens a row sees all of; a place is that of a
// run's last token.
TEST(SelectKeys, KeysThatTokensShareAreChosenAlike) {
  constexpr int32_t kText = 300;
  for (const int32_t rate : {3, 4, 20}) {
    Rng rng(static_cast<uint64_t>(rate));
    KvLayerView kv{.k_format = KvFormat::kF16,
                   .v_aliases_k = true,
                   .kv_heads = 1,
                   .k_dim = 8,
                   .v_dim = 8,
                   .index_dim = kDim,
                   .rate = rate};
    kv.index_offset = k_part_bytes(kv);
    kv.block_stride = layer_part_bytes(kv);
    constexpr int32_t kPages = (kText + 15) / 16;
    std::vector<std::byte> memory(static_cast<size_t>(kPages * kv.block_stride), std::byte{0xff});
    kv.base = memory.data();
    std::vector<int32_t> table(kTableOffset, 1 << 28);
    for (int32_t b = 0; b < kPages; ++b) table.push_back(kPages - 1 - b);
    const auto key_head = [&](int32_t place) {
      return index_head(kv, table[static_cast<size_t>(kTableOffset + place / 16)]);
    };
    for (int32_t place = rate - 1; place < kText; place += rate) {
      store_numbers(key_head(place), place % 16 / rate, random_floats(rng, kDim).data());
    }
    const TestMatrix queries(rng, kText, int64_t{kHeads} * kDim), weights(rng, kText, kHeads);
    for (const auto& kernel : kernels_here()) {
      SCOPED_TRACE(kernel.name);
      TestDevice device = TestDevice::cpu(3);
      OpContext context = device.context();
      TestMatrix asked = queries, worth = weights;
      std::vector<int32_t> places(static_cast<size_t>(kText) * kTop, -7);
      const AttentionSequence sequence{
          .row_first = 0, .row_count = kText, .kv_length = kText, .block_table = table.data()};
      const SelectKeysArgs args{
          .queries = asked.view(),
          .weights = worth.view(),
          .kv = kv,
          .sequences = {&sequence, 1},
          .table_offset = kTableOffset,
          .chosen = {.front = places.data(), .stride = kTop, .top = kTop, .rate = rate}};
      kernel.run(context, args);
      for (int32_t t = 0; t < kText; ++t) {
        std::vector<std::pair<double, int32_t>> scores;
        for (int32_t place = rate - 1; place <= t; place += rate) {
          double score = 0;
          for (int32_t h = 0; h < kHeads; ++h) {
            double product = 0;
            for (int32_t d = 0; d < kDim; ++d) {
              product += double{queries.at(t, h * kDim + d)} *
                         load_number(key_head(place), place % 16 / rate, d);
            }
            score += weights.at(t, h) * std::max(product, 0.0);
          }
          scores.emplace_back(-score, place);
        }
        std::ranges::stable_sort(scores, {}, &std::pair<double, int32_t>::first);
        scores.resize(std::min<size_t>(scores.size(), kTop));
        std::vector<int32_t> want;
        for (const auto& [score, place] : scores) want.push_back(place);
        std::ranges::sort(want);
        const int32_t* const row = args.chosen.row(t);
        ASSERT_EQ(std::vector(row, row + args.chosen.count(t)), want) << t;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::select_keys_test
