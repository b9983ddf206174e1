// The product of wgmma.cuh by its own index arithmetic on a CPU. What the hardware does is
// written down here a second time, from the PTX ISA: the copy engine's swizzle, the operands that a
// descriptor names, and which sums a thread gets.
#include "ops/linear/wgmma_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/linear/wgmma.h"

namespace headrace {
namespace {

// Rows of integers, in order to compare sums exactly; elements past the end are 0.
struct Matrix {
  int64_t rows, columns;
  std::vector<float> values;

  static Matrix random(Rng& rng, int64_t rows, int64_t columns) {
    Matrix matrix{rows, columns, {}};
    for (int64_t i = 0; i < rows * columns; ++i) {
      matrix.values.push_back(static_cast<float>(rng.below(9)) - 4.0f);
    }
    return matrix;
  }
  bool has(int64_t row, int64_t column) const { return row < rows && column < columns; }
  float at(int64_t row, int64_t column) const {
    return has(row, column) ? values[static_cast<size_t>(row * columns + column)] : 0.0f;
  }
};

// Shared memory, an element for every two bytes.
using Image = std::vector<float>;

// The 128-byte swizzle: bits 7 to 9 of an address are XORed into bits 4 to 6.
uint32_t swizzle(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

// A box of 64 columns by the copy engine, to `to`.
void copy_box(Image& image, uint32_t to, const Matrix& from, int64_t column, int64_t row,
              int rows) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < 64; ++c) {
      image[swizzle(to + static_cast<uint32_t>(128 * r + 2 * c)) / 2] =
          from.at(row + r, column + c);
    }
  }
}

// [rows, 16] of the operand that a descriptor names: k along the bytes of its rows.
std::vector<float> operand(const Image& image, uint64_t descriptor, int rows) {
  EXPECT_EQ(descriptor >> 62, 1u) << "128-byte swizzle";
  const auto start = static_cast<uint32_t>((descriptor & 0x3fff) << 4);
  const auto group = static_cast<uint32_t>((descriptor >> 32 & 0x3fff) << 4);
  std::vector<float> values;
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < 16; ++k) {
      const uint32_t at =
          start + static_cast<uint32_t>(r / 8) * group + static_cast<uint32_t>(r % 8 * 128 + 2 * k);
      values.push_back(image[swizzle(at) / 2]);
    }
  }
  return values;
}

// The sums of 64 x kTile as wgmma leaves them: [thread][sum].
template <int kTile>
std::vector<std::vector<float>> dealt(const std::vector<float>& d) {
  std::vector<std::vector<float>> sums(128, std::vector<float>(kTile / 2));
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < kTile / 2; ++i) {
      const int row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
      const int column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
      sums[static_cast<size_t>(thread)][static_cast<size_t>(i)] =
          d[static_cast<size_t>(row * kTile + column)];
    }
  }
  return sums;
}

template <int kTile, bool kGated>
class Emulation {
  using Shape = WgmmaShape<kTile>;
  static constexpr int kOutColumns = kGated ? kTile / 2 : kTile;

 public:
  Emulation(const Matrix& x, const Matrix& weight)
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
        const Image stage = stage_of(tile, rank, k);
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
  Image stage_of(WgmmaTile tile, int rank, int64_t k) const {
    Image image(Shape::kStageBytes / 2, std::nanf(""));
    copy_box(image, 0, x_, k, wgmma_row(tile.row, rank, 0), kWgmmaRows);
    const auto second = static_cast<int32_t>(kGated ? n_out_ : Shape::kHalfRows);
    for (int from = 0; from < kWgmmaBlocks; ++from) {
      copy_box(image, static_cast<uint32_t>(wgmma_half_offset<kTile>(from)), weight_, k,
               wgmma_weight_row(tile.column, kOutColumns, second, from), Shape::kHalfRows);
    }
    return image;
  }

  static void multiply(const Image& stage, int group, std::vector<float>& d) {
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
      Image image(kWgmmaBoxBytes / 2, std::nanf(""));
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

  void store_box(const Image& image, int64_t row, int64_t column) {
    for (int r = 0; r < kWgmmaGroupRows; ++r) {
      for (int c = 0; c < kWgmmaBoxColumns; ++c) {
        if (row + r >= x_.rows || column + c >= n_out_) continue;
        float& y = y_[static_cast<size_t>((row + r) * n_out_ + column + c)];
        EXPECT_TRUE(std::isnan(y)) << "written twice: " << row + r << ", " << column + c;
        y = image[swizzle(static_cast<uint32_t>(128 * r + 2 * c)) / 2];
      }
    }
  }

  const Matrix& x_;
  const Matrix& weight_;
  const int64_t n_out_;
  std::vector<float> y_;
};

template <int kTile, bool kGated>
void expect_product(int64_t m, int64_t n, int64_t k) {
  SCOPED_TRACE("tile " + std::to_string(kTile) + " M" + std::to_string(m) + " N" +
               std::to_string(n) + " K" + std::to_string(k) + (kGated ? " gated" : ""));
  Rng rng(static_cast<uint64_t>(m + 1000 * n + k));
  const Matrix x = Matrix::random(rng, m, k), weight = Matrix::random(rng, n, k);
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
}  // namespace headrace
