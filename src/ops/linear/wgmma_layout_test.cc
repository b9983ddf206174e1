// The product of wgmma.cuh by its own index arithmetic on a CPU (wgmma_fixture.h).
#include "ops/linear/wgmma_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "ops/linear/wgmma.h"
#include "ops/linear/wgmma_fixture.h"

namespace headrace::wgmma_layout_test {
namespace {

template <int kTile, bool kGated>
class Emulation {
  using Shape = WgmmaShape<kTile>;
  static constexpr int kOutColumns = kGated ? kTile / 2 : kTile;

 public:
  Emulation(const IntegerMatrix& x, const IntegerMatrix& weight)
      : x_(x), weight_(weight), n_out_(kGated ? weight.rows / 2 : weight.rows) {
    y_.resize(static_cast<size_t>(x.rows * n_out_), std::nanf(""));
  }

  // y, or gate's sums + 1000 up's where gated.
  const std::vector<float>& run(int32_t clusters) {
    const WgmmaGrid grid{
        static_cast<int32_t>((x_.rows + kWgmmaClusterRows - 1) / kWgmmaClusterRows),
        static_cast<int32_t>((n_out_ + kOutColumns - 1) / kOutColumns)};
    for (int32_t cluster = 0; cluster < clusters; ++cluster) {
      for (int32_t index = cluster; index < grid.tiles(); index += clusters) {
        run_tile(wgmma_tile(grid, index));
      }
    }
    return y_;
  }

 private:
  void run_tile(WgmmaTile tile) {
    std::vector<std::vector<float>> sums(
        4, std::vector<float>(static_cast<size_t>(kWgmmaGroupRows * kTile)));
    for (int64_t k = 0; k < x_.columns; k += kWgmmaStep) {
      for (int rank = 0; rank < kWgmmaBlocks; ++rank) {
        const SharedImage stage = stage_of(tile, rank, k);
        for (int group = 0; group < kWgmmaGroups; ++group) {
          multiply(stage, group, sums[static_cast<size_t>(rank * kWgmmaGroups + group)]);
        }
      }
    }
    for (int rank = 0; rank < kWgmmaBlocks; ++rank) {
      for (int group = 0; group < kWgmmaGroups; ++group) {
        store(dealt<kTile>(sums[static_cast<size_t>(rank * kWgmmaGroups + group)]),
              wgmma_row(tile.row, rank, group), tile.column * kOutColumns);
      }
    }
  }

  // A stage of a block: its own rows of x, and of W what each block of the cluster sends to both.
  SharedImage stage_of(WgmmaTile tile, int rank, int64_t k) const {
    SharedImage image(Shape::kStageBytes / 2, std::nanf(""));
    copy_box(image, 0, x_, k, wgmma_row(tile.row, rank, 0), kWgmmaRows);
    const auto second = static_cast<int32_t>(kGated ? n_out_ : Shape::kHalfRows);
    for (int from = 0; from < kWgmmaBlocks; ++from) {
      copy_box(image, static_cast<uint32_t>(wgmma_half_offset<kTile>(from)), weight_, k,
               wgmma_weight_row(tile.column, kOutColumns, second, from), Shape::kHalfRows);
    }
    return image;
  }

  static void multiply(const SharedImage& stage, int group, std::vector<float>& d) {
    for (int k = 0; k < kWgmmaStep; k += 16) {
      const auto x =
          operand(stage, wgmma_operand().at(static_cast<uint32_t>(wgmma_x_offset(group, k))), 64);
      const auto weight = operand(
          stage, wgmma_operand().at(static_cast<uint32_t>(wgmma_weight_offset<kTile>(k))), kTile);
      for (size_t r = 0; r < 64; ++r) {
        for (size_t c = 0; c < kTile; ++c) {
          for (size_t i = 0; i < 16; ++i) d[r * kTile + c] += x[16 * r + i] * weight[16 * c + i];
        }
      }
    }
  }

  // As WgmmaConsumer::store.
  void store(const std::vector<std::vector<float>>& sums, int64_t row, int64_t column) {
    for (int box = 0; box < kOutColumns / kWgmmaBoxColumns; ++box) {
      SharedImage image(kWgmmaBoxBytes / 2, std::nanf(""));
      for (int thread = 0; thread < 128; ++thread) {
        const WgmmaSumPlace place = wgmma_sum_place(thread);
        for (int i = 0; i < kWgmmaBoxColumns / 8; ++i) {
          for (int half = 0; half < 2; ++half) {
            const int at = swizzled_128(place.row + 8 * half, 2 * (8 * i + place.column)) / 2;
            const int j = box * (kWgmmaBoxColumns / 8) + i;
            for (int e = 0; e < 2; ++e) {
              const auto sum = [&](int from) {
                return sums[static_cast<size_t>(thread)]
                           [static_cast<size_t>(4 * from + 2 * half + e)];
              };
              image[static_cast<size_t>(at + e)] =
                  sum(j) + (kGated ? 1000 * sum(j + kOutColumns / 8) : 0);
            }
          }
        }
      }
      store_box(image, row, column + box * kWgmmaBoxColumns);
    }
  }

  void store_box(const SharedImage& image, int64_t row, int64_t column) {
    for (int r = 0; r < kWgmmaGroupRows; ++r) {
      for (int c = 0; c < kWgmmaBoxColumns; ++c) {
        if (row + r >= x_.rows || column + c >= n_out_) continue;
        float& y = y_[static_cast<size_t>((row + r) * n_out_ + column + c)];
        EXPECT_TRUE(std::isnan(y)) << "written twice: " << row + r << ", " << column + c;
        y = image[swizzle(static_cast<uint32_t>(128 * r + 2 * c)) / 2];
      }
    }
  }

  const IntegerMatrix& x_;
  const IntegerMatrix& weight_;
  const int64_t n_out_;
  std::vector<float> y_;
};

template <int kTile, bool kGated>
void expect_product(int64_t m, int64_t n, int64_t k) {
  SCOPED_TRACE("tile " + std::to_string(kTile) + " M" + std::to_string(m) + " N" +
               std::to_string(n) + " K" + std::to_string(k) + (kGated ? " gated" : ""));
  Rng rng(static_cast<uint64_t>(m + 1000 * n + k));
  const IntegerMatrix x = IntegerMatrix::random(rng, m, k),
                      weight = IntegerMatrix::random(rng, n, k);
  const auto product = [&](int64_t row, int64_t of) {
    float sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += x.at(row, i) * weight.at(of, i);
    return sum;
  };
  const std::vector<float> y = Emulation<kTile, kGated>(x, weight).run(3);
  const int64_t n_out = kGated ? n / 2 : n;
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < n_out; ++column) {
      float expected = product(row, column);
      if (kGated) expected += 1000 * product(row, n_out + column);
      ASSERT_EQ(y[static_cast<size_t>(row * n_out + column)], expected) << row << ", " << column;
    }
  }
}

TEST(LinearWgmmaLayout, TheKernelsPlacesMakeTheProduct) {
  expect_product<256, false>(130, 300, 72);
  expect_product<256, true>(65, 2 * 131, 40);
  expect_product<128, false>(257, 129, 64);
  expect_product<128, true>(40, 2 * 70, 136);
}

TEST(LinearWgmmaLayout, AWarpWritesABoxWithoutBankConflicts) {
  for (int warp = 0; warp < 4; ++warp) {
    for (int i = 0; i < kWgmmaBoxColumns / 8; ++i) {
      std::set<int> banks;
      for (int lane = 0; lane < 32; ++lane) {
        const WgmmaSumPlace place = wgmma_sum_place(32 * warp + lane);
        banks.insert(swizzled_128(place.row, 2 * (8 * i + place.column)) / 4 % 32);
      }
      EXPECT_EQ(banks.size(), 32u) << "warp " << warp << " columns from " << 8 * i;
    }
  }
}

TEST(LinearWgmmaLayout, ClustersTakeEachTileOnce) {
  for (const int32_t rows : {1, 2, 7, 8, 9, 17, 32}) {
    for (const int32_t columns : {1, 3, 16, 112}) {
      const WgmmaGrid grid{rows, columns};
      std::set<std::pair<int32_t, int32_t>> taken;
      for (int32_t index = 0; index < grid.tiles(); ++index) {
        const WgmmaTile tile = wgmma_tile(grid, index);
        ASSERT_TRUE(tile.row >= 0 && tile.row < rows && tile.column >= 0 && tile.column < columns);
        EXPECT_TRUE(taken.insert({tile.row, tile.column}).second);
      }
    }
  }
}

// What is multiplied at a time shares its operands: of 64 tiles in turn no more than 8 + 9 x 2
// stripes of x and W are read (in order of rows it would be 64 + 1).
TEST(LinearWgmmaLayout, TilesOfATimeAreAPatch) {
  const WgmmaGrid grid{32, 112};
  for (int32_t first = 0; first + 64 <= grid.tiles(); first += 64) {
    std::set<int32_t> rows, columns;
    for (int32_t index = first; index < first + 64; ++index) {
      rows.insert(wgmma_tile(grid, index).row);
      columns.insert(wgmma_tile(grid, index).column);
    }
    EXPECT_LE(rows.size(), 16u);
    EXPECT_LE(columns.size(), 9u);
  }
}

TEST(LinearWgmmaLayout, TheWidthOfATileFollowsTheRounds) {
  EXPECT_EQ(plan_wgmma(8192, 28672, 132).tile_rows, 256);
  EXPECT_EQ(plan_wgmma(8192, 28672, 132).clusters, 66);
  EXPECT_EQ(plan_wgmma(1024, 6144, 132).tile_rows, 128);  // 2 rounds of 256 or 3 of 128
  EXPECT_EQ(plan_wgmma(256, 4096, 132).tile_rows, 128);
  EXPECT_NEAR(plan_wgmma(1024, 28672, 132).filled, 448.0 / (7 * 66), 1e-9);
  EXPECT_NEAR(plan_wgmma(300, 28672, 132).filled, 300.0 / 512 * 224 / (4 * 66), 1e-9);
  EXPECT_EQ(plan_wgmma(256, 4096, 132).clusters, 32);
}

}  // namespace
}  // namespace headrace::wgmma_layout_test
