// The product of gemv.cuh by its own index arithmetic on a CPU, and how W is cut. Which
// elements of m16n8k16 a lane has is written down here a second time, from the PTX ISA.
#include "ops/linear/gemv_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/linear/gemv.h"

namespace headrace::gemv_layout_test {
namespace {

constexpr int kColumns = gemv_columns(kGemvXBytes);  // of 16-bit weights

using Pair = std::array<float, 2>;     // what a register of 32 bits holds
using Piece = std::array<Pair, 4>;     // 16 bytes
using Loaded = std::array<Piece, 32>;  // of a warp's lanes
using Sums = std::array<std::array<float, 4>, 32>;

// Rows of small integers, so that sums are exact.
std::vector<float> random_rows(Rng& rng, int rows) {
  std::vector<float> values;
  for (int i = 0; i < rows * kColumns; ++i) {
    values.push_back(static_cast<float>(rng.below(9)) - 4.0f);
  }
  return values;
}

// 16 bytes at `byte` of row `row` of 128.
Piece piece_at(const std::vector<float>& rows, int row, int byte) {
  Piece piece;
  for (size_t pair = 0; pair < 4; ++pair) {
    for (size_t e = 0; e < 2; ++e) {
      const auto column = static_cast<size_t>(byte / 2) + 2 * pair + e;
      piece[pair][e] = rows[static_cast<size_t>(row * kColumns) + column];
    }
  }
  return piece;
}

// c += a b of m16n8k16; register i of A of lane l is a(l, i), of B b(l, i).
template <class A, class B>
void multiply_add(Sums& c, const A& a, const B& b) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) {
        const Pair& left = a(row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2);
        const Pair& right = b(column * 4 + k % 8 / 2, k / 8);
        const auto e = static_cast<size_t>(k % 2);
        c[static_cast<size_t>(lane)][static_cast<size_t>(i)] += left[e] * right[e];
      }
    }
  }
}

// As GemvBlock::add_products().
Sums step_of_a_warp(const Loaded& low, const Loaded& high, const Loaded& x) {
  Sums sums{};
  for (const int first : {0, 2}) {  // the even pairs of registers, the odd ones
    multiply_add(
        sums,
        [&](int lane, int i) -> const Pair& {
          return (i % 2 == 0 ? low
                             : high)[static_cast<size_t>(lane)][static_cast<size_t>(first + i / 2)];
        },
        [&](int lane, int i) -> const Pair& {
          return x[static_cast<size_t>(lane)][static_cast<size_t>(first + i)];
        });
  }
  return sums;
}

TEST(GemvLayout, AStepIsTheProductOfEightRowsAndFour) {
  Rng rng(5);
  const std::vector<float> w = random_rows(rng, kGemvTileRows), x = random_rows(rng, kGemvXRows);
  Loaded low, high, rows;
  for (int lane = 0; lane < 32; ++lane) {
    const auto at = static_cast<size_t>(lane);
    low[at] = piece_at(w, gemv_row(lane), gemv_byte(lane));
    high[at] = piece_at(w, kGemvHalfRows + gemv_row(lane), gemv_byte(lane));
    rows[at] = piece_at(x, gemv_row(lane), gemv_byte(lane));
  }
  const Sums sums = step_of_a_warp(low, high, rows);
  std::set<std::pair<int, int>> seen;
  for (int lane = 0; lane < 32; ++lane) {
    for (const int half : {0, 1}) {
      const int i = gemv_sum(lane) + 2 * half;
      const float sum =
          sums[static_cast<size_t>(lane)][static_cast<size_t>(i)] +
          sums[static_cast<size_t>(lane ^ 4)][static_cast<size_t>(gemv_sum(lane ^ 4) + 2 * half)];
      const int row = kGemvHalfRows * half + gemv_row(lane), x_row = gemv_sum_x_row(lane);
      float expected = 0;
      for (int k = 0; k < kColumns; ++k) {
        expected += w[static_cast<size_t>(row * kColumns + k)] *
                    x[static_cast<size_t>(x_row * kColumns + k)];
      }
      EXPECT_EQ(sum, expected) << "lane " << lane << " half " << half;
      seen.insert({row, x_row});
    }
  }
  EXPECT_EQ(seen.size(), 32u);  // each by two lanes, of which one stores it
}

// Whole lines of memory, and shared memory without bank conflicts: eight lanes at a time read 128
// bytes that lie side by side.
TEST(GemvLayout, EightLanesHaveALine) {
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(gemv_row(lane), lane / 8);
    EXPECT_EQ(gemv_byte(lane), lane % 8 * 16);
  }
}

// Beside 128 columns of 8 bits a lane reads the 32 bytes of x of its 16 columns in two accesses; of
// each, eight lanes read from all 32 banks.
TEST(GemvLayout, OfEightBitColumnsALaneHasTheSameOfX) {
  EXPECT_EQ(gemv_columns(1), 128);
  EXPECT_EQ(gemv_x_line(1), 256);
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(gemv_x_byte(lane, kGemvXBytes, 0), gemv_byte(lane));
    std::set<int> of_lane;
    for (const int access : {0, 1}) of_lane.insert(gemv_x_byte(lane, 1, access));
    const int first = kGemvXBytes * gemv_byte(lane);
    EXPECT_EQ(of_lane, (std::set<int>{first, first + 16}));
  }
  for (const int access : {0, 1}) {
    for (int eight = 0; eight < 32; eight += 8) {
      std::set<int> banks;
      for (int lane = eight; lane < eight + 8; ++lane) {
        for (int word = 0; word < 4; ++word) {
          banks.insert((gemv_x_byte(lane, 1, access) / 4 + word) % 32);
        }
      }
      EXPECT_EQ(banks.size(), 32u);
    }
  }
}

TEST(GemvLayout, NothingInTheRingLiesTwice) {
  constexpr int kSlots = 3;
  std::set<int> seen;
  for (int slot = 0; slot < kSlots; ++slot) {
    for (int warp = 0; warp < kGemvWarps; ++warp) {
      for (int lane = 0; lane < 32; ++lane) {
        for (const int half : {0, kGemvLoadBytes}) {
          const int at = gemv_ring_offset(slot, warp, lane) + half;
          EXPECT_EQ(at % 16, 0);
          EXPECT_LT(at, gemv_ring_offset(kSlots, 0, 0));
          EXPECT_TRUE(seen.insert(at).second);
        }
      }
    }
  }
}

TEST(GemvPlan, EveryTileHasABlockAndEverySumAPlace) {
  constexpr int kMultiprocessors = 132;
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{6144, 4096},
                             {4096, 4096},
                             {4096, 14336},
                             {28672, 4096},
                             {128256, 4096},
                             {1, 512},
                             {4097, 576}}) {
    for (const int64_t m : {1, 4, 8}) {
      for (const int form : {0, 1, 2, 3}) {
        const bool gated = form % 2 == 1;
        const int weight_bytes = form < 2 ? 2 : 1;
        SCOPED_TRACE(std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(k));
        const GemvPlan plan = plan_gemv({.m = m,
                                         .n = 2 * n,
                                         .k = k,
                                         .gated = gated,
                                         .normed = k <= 4096,
                                         .weight_bytes = weight_bytes},
                                        kMultiprocessors);
        const int64_t outputs = gated ? n : 2 * n, rows = gated ? kGemvHalfRows : kGemvTileRows;
        ASSERT_GT(plan.blocks, 0);
        EXPECT_GE(plan.tiles * rows, outputs);
        EXPECT_LT((plan.tiles - 1) * rows, outputs);
        EXPECT_LE(plan.blocks, kMultiprocessors);
        EXPECT_LE(plan.blocks, plan.tiles);
        EXPECT_GE(plan.round_tiles, 1);
        EXPECT_LE(plan.shared_bytes, 227 << 10);
        const int64_t share = (plan.tiles + plan.blocks - 1) / plan.blocks;
        const int64_t rounds = (share + plan.round_tiles - 1) / plan.round_tiles;
        const int64_t sums = 4 * gemv_sum_index(kGemvWarps, 0, plan.round_tiles * kGemvTileRows, 0,
                                                static_cast<int>(m));
        const int64_t columns = kGemvWarps * gemv_columns(weight_bytes);
        const int64_t steps = (k + columns - 1) / columns;
        EXPECT_GE(plan.windows * plan.window_steps, steps);
        EXPECT_TRUE(plan.windows == 1 || rounds == 1);
        const int64_t rows_of_x =
            plan.windows == 1 ? 2 * m * k : 4 * m * plan.window_steps * columns;
        EXPECT_GE(plan.shared_bytes,
                  gemv_ring_offset(plan.ahead, 0, 0) + rows_of_x + sums * (rounds > 1 ? 2 : 1));
      }
    }
  }
}

}  // namespace
}  // namespace headrace::gemv_layout_test
