// The products of lora_linear_cuda.cu by their own index arithmetic on a CPU, over factors as a
// slot has them. Which elements of m16n8k16 a lane has is written down here a second time, from
// the PTX ISA.
#include "ops/linear/lora_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <iterator>
#include <set>
#include <vector>

#include "ops/linear/lora_slot.h"
#include "ops/op_fixture.h"

namespace headrace::lora_layout_test {
namespace {

using LoraSums = std::array<std::array<float, 4>, 32>;  // of a warp's lanes

// c += a b of m16n8k16: element e of A of lane l is a(l, e), of eight, of B b(l, e), of four.
template <class A, class B>
void multiply_lora_add(LoraSums& c, const A& a, const B& b) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) {
        const int of_row = 2 * (row / 8 + k / 8 * 2) + k % 2;
        const int of_column = 2 * (k / 8) + k % 2;
        c[static_cast<size_t>(lane)][static_cast<size_t>(i)] +=
            a(row % 8 * 4 + k % 8 / 2, of_row) * b(column * 4 + k % 8 / 2, of_column);
      }
    }
  }
}

// Rows of small integers, so that sums are exact.
std::vector<std::vector<float>> lora_rows(Rng& rng, int64_t rows, int64_t columns) {
  std::vector<std::vector<float>> all(static_cast<size_t>(rows));
  for (auto& row : all) {
    for (int64_t i = 0; i < columns; ++i) row.push_back(static_cast<float>(rng.below(9)) - 4.0f);
  }
  return all;
}

std::vector<float> packed_a(const std::vector<std::vector<float>>& rows) {
  const int64_t columns = std::ssize(rows.front());
  std::vector<float> a(
      static_cast<size_t>(lora_a_bytes(DType::kF32, std::ssize(rows), columns) / 4));
  for (int64_t r = 0; r < std::ssize(rows); ++r) {
    pack_lora_a(DType::kF32, reinterpret_cast<std::byte*>(a.data()), r,
                rows[static_cast<size_t>(r)]);
  }
  return a;
}

std::vector<float> packed_b(const std::vector<std::vector<float>>& rows) {
  const int64_t ranks = std::ssize(rows.front());
  std::vector<float> b(static_cast<size_t>(lora_b_bytes(DType::kF32, ranks, std::ssize(rows)) / 4));
  for (int64_t n = 0; n < std::ssize(rows); ++n) {
    pack_lora_b(DType::kF32, reinterpret_cast<std::byte*>(b.data()), n,
                rows[static_cast<size_t>(n)]);
  }
  return b;
}

float dot(const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST(LoraLayout, EveryElementHasAPlaceOfItsOwn) {
  std::set<int64_t> places;
  for (int64_t r = 0; r < 40; ++r) {
    for (int64_t k = 0; k < 72; ++k) places.insert(lora_a_index(r, k, 72));
  }
  EXPECT_EQ(places.size(), 40u * 72);
  EXPECT_LT(*places.rbegin(), lora_a_elements(40, 72));
  places.clear();
  for (int64_t n = 0; n < 200; ++n) {
    for (int64_t r = 0; r < 40; ++r) places.insert(lora_b_index(n, r, 3));
  }
  EXPECT_EQ(places.size(), 40u * 200);
  EXPECT_LT(*places.rbegin(), lora_b_elements(40, 200));
}

// As lora_shrink: two products a tile, of 8 columns of x that a lane has side by side.
TEST(LoraLayout, ATileOfATimesRowsOfX) {
  constexpr int64_t kRanks = 24, kColumns = 72;
  Rng rng(1);
  const auto a = lora_rows(rng, kRanks, kColumns), x = lora_rows(rng, 8, kColumns);
  const std::vector<float> packed = packed_a(a);
  for (int64_t rank_tile = 0; rank_tile < 2; ++rank_tile) {
    LoraSums sums{};
    for (int64_t tile = 0; tile < lora_tiles(kColumns, kLoraColumns); ++tile) {
      for (int product = 0; product < kLoraAProducts; ++product) {
        multiply_lora_add(
            sums,
            [&](int lane, int e) {
              return packed[static_cast<size_t>(lora_a_tile(rank_tile, tile, kColumns) +
                                                lora_lane(product, lane) + e)];
            },
            [&](int lane, int e) {
              const int64_t k = tile * kLoraColumns + lane % 4 * kLoraLaneItems + 4 * product + e;
              return k < kColumns ? x[static_cast<size_t>(lane / 4)][static_cast<size_t>(k)] : 0;
            });
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int64_t rank = rank_tile * kLoraTileRanks + lane / 4 + 8 * (i / 2);
        const auto row = static_cast<size_t>(2 * (lane % 4) + i % 2);
        const float expected = rank < kRanks ? dot(a[static_cast<size_t>(rank)], x[row]) : 0;
        EXPECT_EQ(sums[static_cast<size_t>(lane)][static_cast<size_t>(i)], expected);
      }
    }
  }
}

// As lora_expand: eight products a tile, whose sums of a lane are 16 columns of y side by side.
TEST(LoraLayout, ATileOfBTimesRowsOfT) {
  constexpr int64_t kRanks = 24, kOutputs = 200;
  Rng rng(2);
  const auto b = lora_rows(rng, kOutputs, kRanks), t = lora_rows(rng, 8, kRanks);
  const std::vector<float> packed = packed_b(b);
  for (int64_t output_tile = 0; output_tile < 2; ++output_tile) {
    for (int product = 0; product < kLoraBProducts; ++product) {
      LoraSums sums{};
      for (int64_t rank_tile = 0; rank_tile < 2; ++rank_tile) {
        multiply_lora_add(
            sums,
            [&](int lane, int e) {
              return packed[static_cast<size_t>(lora_b_tile(output_tile, rank_tile, 2) +
                                                lora_lane(product, lane) + e)];
            },
            [&](int lane, int e) {
              const int64_t rank =
                  rank_tile * kLoraTileRanks + 2 * (lane % 4) + e % 2 + 8 * (e / 2);
              return rank < kRanks ? t[static_cast<size_t>(lane / 4)][static_cast<size_t>(rank)]
                                   : 0;
            });
      }
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          // add_sums(): of column i / 2 of the product's two.
          const int64_t n = output_tile * kLoraOutputs + lane / 4 * 16 + 2 * product + i / 2;
          const auto row = static_cast<size_t>(2 * (lane % 4) + i % 2);
          const float expected = n < kOutputs ? dot(b[static_cast<size_t>(n)], t[row]) : 0;
          EXPECT_EQ(sums[static_cast<size_t>(lane)][static_cast<size_t>(i)], expected);
        }
      }
    }
  }
}

TEST(LoraLayout, WhatATypeRoundsIsWhatASlotHas) {
  const std::vector<float> row = {1.0f, -2.5f, 1.0f + 0x1p-9f};
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> a(static_cast<size_t>(lora_a_bytes(dtype, 1, 3) / 2));
    pack_lora_a(dtype, reinterpret_cast<std::byte*>(a.data()), 0, row);
    const auto at = [&](int64_t k) { return a[static_cast<size_t>(lora_a_index(0, k, 3))]; };
    EXPECT_EQ(at(1), dtype == DType::kF16 ? 0xc100 : 0xc020);
    EXPECT_EQ(at(2), dtype == DType::kF16 ? 0x3c02 : 0x3f80);
  }
}

TEST(LoraLayout, TasksAreAsManyAsAnyStepOfSoManyRowsNeeds) {
  EXPECT_EQ(lora_tasks_max(64, 32), 34);
  EXPECT_EQ(lora_tasks_max(5, 32), 5);
  EXPECT_EQ(lora_tasks_max(2048, 4), 68);
  for (const auto& rows : {std::vector<int64_t>{33, 33, 1}, {1, 1, 1}, {32, 64, 31}, {97}}) {
    int64_t all = 0, tasks = 0;
    for (const int64_t count : rows) {
      all += count;
      tasks += (count + kLoraTaskRows - 1) / kLoraTaskRows;
    }
    EXPECT_LE(tasks, lora_tasks_max(all, std::ssize(rows)));
  }
}

}  // namespace
}  // namespace headrace::lora_layout_test
