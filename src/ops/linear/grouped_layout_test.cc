// Every element of y is one tile's, whatever the experts' rows are (grouped_layout.h).
#include "ops/linear/grouped_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/linear/grouped.h"
#include "ops/linear/wgmma_fixture.h"

namespace headrace::grouped_layout_test {
namespace {

using FewTiles = GroupedShape<1, 128, 1>;
using ManyTiles = GroupedShape<2, 256, 2>;

// Goes through all tiles as the blocks of a launch do, with tiles of `out` columns of y.
template <class Shape>
void expect_each_element_once(const std::vector<int32_t>& counts, int32_t n_out, int32_t out) {
  const auto experts = static_cast<int32_t>(counts.size());
  const int32_t columns = (n_out + out - 1) / out;
  std::vector<int32_t> starts = {0}, first_tiles = {0};
  for (const int32_t count : counts) {
    starts.push_back(starts.back() + count);
    first_tiles.push_back(first_tiles.back() + ExpertTiles<Shape>::of(count, columns).count());
  }
  std::vector<int> computed(static_cast<size_t>(starts.back()) * static_cast<size_t>(n_out));
  for (int32_t index = 0; index < first_tiles.back(); ++index) {
    const int32_t expert = expert_of_tile(first_tiles.data(), experts, index);
    const auto e = static_cast<size_t>(expert);
    ASSERT_LE(first_tiles[e], index);
    ASSERT_LT(index, first_tiles[e + 1]);
    const auto tiles = ExpertTiles<Shape>::of(counts[e], columns);
    for (int32_t rank = 0; rank < Shape::kBlocks; ++rank) {
      const GroupedTile tile = grouped_tile(tiles, index - first_tiles[e], rank);
      ASSERT_TRUE(!tile.split || counts[e] - tile.row <= Shape::kRows);
      const int32_t last = std::min(tile.row + Shape::kRows, counts[e]);
      for (int32_t row = tile.row; row < last; ++row) {
        for (int32_t c = tile.column * out; c < std::min((tile.column + 1) * out, n_out); ++c) {
          ++computed[static_cast<size_t>(starts[e] + row) * static_cast<size_t>(n_out) +
                     static_cast<size_t>(c)];
        }
      }
    }
  }
  EXPECT_TRUE(std::ranges::all_of(computed, [](int times) { return times == 1; }));
}

template <class Shape>
void expect_all_lists() {
  Rng rng(3);
  std::vector<std::vector<int32_t>> lists = {
      {0},   {1},         {5000}, {0, 0, 700, 0},  std::vector<int32_t>(128, 1),
      {128}, {129, 0, 1}, {256},  {257, 383, 384}, {385, 64, 65, 127, 63}};
  for (int i = 0; i < 20; ++i) {
    std::vector<int32_t>& list = lists.emplace_back(1 + rng.below(40));
    for (int32_t& count : list) count = static_cast<int32_t>(rng.below(1 + rng.below(600)));
  }
  for (const std::vector<int32_t>& list : lists) {
    for (const int32_t n_out : {8, 72, 128, 136, 392}) {
      expect_each_element_once<Shape>(list, n_out, Shape::kTile);
      expect_each_element_once<Shape>(list, n_out, Shape::kHalfRows);
    }
  }
}

TEST(GroupedLayout, EachElementIsOneTiles) {
  expect_all_lists<FewTiles>();
  expect_all_lists<ManyTiles>();
}

// What cluster of blocks reads twice is what the other block has, too.
TEST(GroupedLayout, BlocksOfAClusterShareWeightsOrRows) {
  for (const int32_t count : {1, 128, 129, 256, 257, 400, 900}) {
    const auto tiles = ExpertTiles<ManyTiles>::of(count, 5);
    for (int32_t i = 0; i < tiles.count(); ++i) {
      const GroupedTile first = grouped_tile(tiles, i, 0), second = grouped_tile(tiles, i, 1);
      EXPECT_EQ(first.split, second.split);
      EXPECT_EQ(first.split, first.row == second.row);
      EXPECT_EQ(first.split, first.column != second.column);
    }
  }
}

// Copies of rows and of boxes of W start patterns of the swizzle.
TEST(GroupedLayout, StagesAreWholePatterns) {
  const auto expect_patterns = []<class Shape>(Shape) {
    EXPECT_EQ(Shape::kXBytes % 1024, 0);
    EXPECT_EQ(Shape::kHalfBytes % 1024, 0);
    EXPECT_EQ(Shape::kRowsOfThread * Shape::kRowThreads * 16, Shape::kXBytes);
    EXPECT_GE(Shape::kStages, 4);
  };
  expect_patterns(FewTiles());
  expect_patterns(ManyTiles());
}

// Products by the kernel's places, a list's rows gathered from x.
template <class Shape, bool kGated>
class GroupedEmulation {
  static constexpr int kOut = kGated ? Shape::kHalfRows : Shape::kTile;
  static constexpr int kBox = kOut < kWgmmaBoxColumns ? kOut : kWgmmaBoxColumns;

 public:
  struct List {
    std::vector<int32_t> starts, rows;
  };
  GroupedEmulation(const IntegerMatrix& x, const IntegerMatrix& bank, const List& list)
      : x_(x),
        bank_(bank),
        list_(list),
        n_(static_cast<int32_t>(bank.rows / (std::ssize(list.starts) - 1))),
        n_out_(kGated ? n_ / 2 : n_) {
    y_.resize(list.rows.size() * static_cast<size_t>(n_out_), std::nanf(""));
  }

  // y, or gate's sums + 1000 up's where gated.
  const std::vector<float>& run() {
    const int32_t columns = (n_out_ + kOut - 1) / kOut;
    for (size_t e = 0; e + 1 < list_.starts.size(); ++e) {
      const auto tiles = ExpertTiles<Shape>::of(list_.starts[e + 1] - list_.starts[e], columns);
      for (int32_t i = 0; i < tiles.count(); ++i) {
        for (int32_t rank = 0; rank < Shape::kBlocks; ++rank) {
          run_tile(static_cast<int32_t>(e), grouped_tile(tiles, i, rank));
        }
      }
    }
    return y_;
  }

 private:
  void run_tile(int32_t expert, const GroupedTile& tile) {
    const int32_t first = list_.starts[static_cast<size_t>(expert)] + tile.row;
    const int32_t last = list_.starts[static_cast<size_t>(expert) + 1];
    const int32_t column = tile.column * kOut;
    std::vector<std::vector<float>> sums(
        Shape::kGroups, std::vector<float>(size_t{kWgmmaGroupRows} * Shape::kTile));
    for (int64_t k = 0; k < x_.columns; k += kWgmmaStep) {
      SharedImage stage(Shape::kStageBytes / 2, std::nanf(""));
      for (int thread = 0; thread < Shape::kRowThreads; ++thread) {
        copy_rows(stage, thread, first, last, k);
      }
      for (int half = 0; half < 2; ++half) {
        const int32_t second = kGated ? n_ / 2 : Shape::kHalfRows;
        copy_box(stage, static_cast<uint32_t>(Shape::kXBytes + half * Shape::kHalfBytes), bank_, k,
                 expert * n_ + column + half * second, Shape::kHalfRows);
      }
      for (int group = 0; group < Shape::kGroups; ++group) {
        multiply(stage, group, sums[static_cast<size_t>(group)]);
      }
    }
    for (int group = 0; group < Shape::kGroups; ++group) {
      store(dealt<Shape::kTile>(sums[static_cast<size_t>(group)]), first + group * kWgmmaGroupRows,
            last, column);
    }
  }

  // As copy_grouped_rows.
  void copy_rows(SharedImage& stage, int thread, int32_t first, int32_t last, int64_t k) const {
    const GroupedRowCopy own = grouped_row_copy(thread);
    const int32_t count = grouped_rows_of_thread<Shape>(first + own.row, last);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t row = list_.rows[static_cast<size_t>(first + own.row + i * kGroupedRowsApart)];
      const int to = (own.place + i * kGroupedRowsApart * kWgmmaRowBytes) / 2;
      for (int c = 0; c < 8; ++c) {
        stage[static_cast<size_t>(to + c)] = x_.at(row, k + 8 * own.unit + c);
      }
    }
  }

  static void multiply(const SharedImage& stage, int group, std::vector<float>& d) {
    for (int k = 0; k < kWgmmaStep; k += 16) {
      const auto x =
          operand(stage, wgmma_operand().at(static_cast<uint32_t>(wgmma_x_offset(group, k))), 64);
      const auto weight = operand(
          stage, wgmma_operand().at(static_cast<uint32_t>(Shape::kXBytes + 2 * k)), Shape::kTile);
      for (size_t r = 0; r < 64; ++r) {
        for (size_t c = 0; c < Shape::kTile; ++c) {
          for (size_t i = 0; i < 16; ++i) {
            d[r * Shape::kTile + c] += x[16 * r + i] * weight[16 * c + i];
          }
        }
      }
    }
  }

  // As GroupedConsumer::store.
  void store(const std::vector<std::vector<float>>& sums, int32_t first, int32_t last,
             int32_t column) {
    for (int from = 0; from < kOut; from += kBox) {
      SharedImage box(kWgmmaBoxBytes / 2, std::nanf(""));
      for (int thread = 0; thread < 128; ++thread) {
        write_box(sums[static_cast<size_t>(thread)], thread, from, box);
      }
      for (int i = 0; i < kWgmmaGroupRows * (kBox / 8); ++i) {
        const int row = i / (kBox / 8), unit = i % (kBox / 8);
        for (int c = 0; c < 8; ++c) {
          const int32_t listed = first + row, at = column + from + 8 * unit + c;
          if (listed >= last || at >= n_out_) continue;
          float& y = y_[static_cast<size_t>(listed) * static_cast<size_t>(n_out_) +
                        static_cast<size_t>(at)];
          EXPECT_TRUE(std::isnan(y)) << "written twice: " << listed << ", " << at;
          y = box[static_cast<size_t>(swizzled_128(row, 16 * unit) / 2 + c)];
        }
      }
    }
  }
  static void write_box(const std::vector<float>& sums, int thread, int from, SharedImage& box) {
    const WgmmaSumPlace place = wgmma_sum_place(thread);
    for (int i = 0; i < kBox / 8; ++i) {
      for (int half = 0; half < 2; ++half) {
        const int at = swizzled_128(place.row + 8 * half, 2 * (8 * i + place.column)) / 2;
        for (int e = 0; e < 2; ++e) {
          const auto sum = [&](int j) { return sums[static_cast<size_t>(4 * j + 2 * half + e)]; };
          const int j = from / 8 + i;
          box[static_cast<size_t>(at + e)] =
              sum(j) + (kGated ? 1000 * sum(j + Shape::kHalfRows / 8) : 0);
        }
      }
    }
  }

  const IntegerMatrix& x_;
  const IntegerMatrix& bank_;
  const List& list_;
  const int32_t n_, n_out_;
  std::vector<float> y_;
};

template <class Shape, bool kGated>
void expect_grouped_product(const std::vector<int32_t>& counts, int32_t n, int64_t k) {
  SCOPED_TRACE(testing::PrintToString(counts) + " tile " + std::to_string(Shape::kTile));
  Rng rng(static_cast<uint64_t>(n + k));
  typename GroupedEmulation<Shape, kGated>::List list{{0}, {}};
  for (const int32_t count : counts) list.starts.push_back(list.starts.back() + count);
  const int64_t rows_of_x = list.starts.back() + 3;
  for (int32_t i = 0; i < list.starts.back(); ++i) {
    list.rows.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(rows_of_x))));
  }
  const IntegerMatrix x = IntegerMatrix::random(rng, rows_of_x, k);
  const IntegerMatrix bank = IntegerMatrix::random(rng, std::ssize(counts) * n, k);
  const std::vector<float> y = GroupedEmulation<Shape, kGated>(x, bank, list).run();
  const auto product = [&](int32_t row, int64_t of) {
    float sum = 0;
    for (int64_t c = 0; c < k; ++c) sum += x.at(row, c) * bank.at(of, c);
    return sum;
  };
  const int32_t n_out = kGated ? n / 2 : n;
  for (size_t e = 0; e < counts.size(); ++e) {
    const int64_t of = static_cast<int64_t>(e) * n;
    for (int32_t i = list.starts[e]; i < list.starts[e + 1]; ++i) {
      const int32_t row = list.rows[static_cast<size_t>(i)];
      for (int32_t c = 0; c < n_out; ++c) {
        float expected = product(row, of + c);
        if (kGated) expected += 1000 * product(row, of + n_out + c);
        ASSERT_EQ(y[static_cast<size_t>(i) * static_cast<size_t>(n_out) + static_cast<size_t>(c)],
                  expected)
            << "row " << i << ", column " << c;
      }
    }
  }
}

TEST(GroupedLayout, TheKernelsPlacesMakeTheProducts) {
  expect_grouped_product<FewTiles, false>({3, 0, 70}, 72, 64);
  expect_grouped_product<FewTiles, true>({65, 1}, 2 * 40, 128);
  expect_grouped_product<FewTiles, false>({1, 9, 0, 66}, 136, 64);
  expect_grouped_product<FewTiles, true>({17, 64}, 2 * 72, 128);
  expect_grouped_product<ManyTiles, false>({100, 130, 0, 257}, 264, 64);
  expect_grouped_product<ManyTiles, true>({5, 129}, 2 * 136, 128);
}

TEST(GroupedPlan, TilesFollowTheRowsOfAnExpert) {
  DeviceTraits h200{.kind = DeviceKind::kCuda, .compute_capability = 90, .sm_count = 132};
  const auto plan = [&](int64_t tokens, int64_t n) {
    return plan_grouped({.rows = 8 * tokens, .experts = 128, .n = n}, h200);
  };
  EXPECT_EQ(plan(1, 1536), GroupedTiles::kFew);
  EXPECT_EQ(plan(64, 1536), GroupedTiles::kFew);
  EXPECT_EQ(plan(256, 2048), GroupedTiles::kFew);
  EXPECT_EQ(plan(1024, 1536), GroupedTiles::kMany);
  h200.batch_invariant = true;
  EXPECT_EQ(plan(2, 1536), GroupedTiles::kFew);
  EXPECT_EQ(plan(8192, 1536), GroupedTiles::kFew);
}

}  // namespace
}  // namespace headrace::grouped_layout_test
