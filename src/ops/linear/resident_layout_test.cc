// The product of resident.cuh by its own index arithmetic on a CPU. What the hardware does
// is written down here a second time, from the PTX ISA: what ldmatrix loads, and which elements of
// m16n8k16 a lane has.
#include "ops/linear/resident_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/linear/resident.h"

namespace headrace::resident_layout_test {
namespace {

// Rows of small integers, in order to compare sums exactly.
struct Matrix {
  int rows, columns;
  std::vector<float> values;

  static Matrix random(Rng& rng, int rows, int columns) {
    Matrix matrix{rows, columns, {}};
    for (int i = 0; i < rows * columns; ++i) {
      matrix.values.push_back(static_cast<float>(rng.below(9)) - 4.0f);
    }
    return matrix;
  }
  float at(int row, int column) const {
    return values[static_cast<size_t>(row * columns + column)];
  }
};

// Shared memory, an element for every two bytes; what nobody wrote is NaN.
using Image = std::vector<float>;
using Fragment = std::array<std::array<float, 2>, 32>;  // a register of each lane

// What one of ldmatrix's 8 x 8 matrices becomes: lane l has elements 2 (l % 4) and the next of row
// l / 4.
Fragment load_matrix(const Image& image, const std::array<int, 8>& addresses) {
  Fragment fragment;
  for (int lane = 0; lane < 32; ++lane) {
    for (int e = 0; e < 2; ++e) {
      const int address = addresses[static_cast<size_t>(lane / 4)] + 2 * (2 * (lane % 4) + e);
      fragment[static_cast<size_t>(lane)][static_cast<size_t>(e)] =
          image[static_cast<size_t>(address / 2)];
    }
  }
  return fragment;
}

// kMatrices of them, their rows named by lanes 8 i .. 8 i + 7 each.
template <int kMatrices, class PlaceOf>
std::array<Fragment, kMatrices> load_matrices(const Image& image, int row_bytes, int first_row,
                                              int step, PlaceOf place_of) {
  std::array<Fragment, kMatrices> fragments;
  for (int i = 0; i < kMatrices; ++i) {
    std::array<int, 8> addresses;
    std::set<int> bank_groups;
    for (int r = 0; r < 8; ++r) {
      const ResidentPlace place = place_of(8 * i + r);
      const int address =
          (first_row + place.row) * row_bytes + place.byte + 2 * kResidentStep * step;
      addresses[static_cast<size_t>(r)] = address;
      bank_groups.insert(address / 16 % 8);
    }
    EXPECT_EQ(bank_groups.size(), 8u) << "bank conflict";
    fragments[static_cast<size_t>(i)] = load_matrix(image, addresses);
  }
  return fragments;
}

// c += a b of m16n8k16: with g = lane / 4 and t = 2 (lane % 4), a register i holds row g + 8 (i %
// 2), columns t + 8 (i / 2); b register i holds rows t + 8 i of column g.
void multiply_add(float (&c)[16][8], const std::array<Fragment, 4>& a, const Fragment& b0,
                  const Fragment& b1) {
  float x[16][16], w[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4 * 2;
    for (int e = 0; e < 2; ++e) {
      for (int i = 0; i < 4; ++i) {
        x[g + i % 2 * 8][t + e + i / 2 * 8] =
            a[static_cast<size_t>(i)][static_cast<size_t>(lane)][static_cast<size_t>(e)];
      }
      w[t + e][g] = b0[static_cast<size_t>(lane)][static_cast<size_t>(e)];
      w[t + e + 8][g] = b1[static_cast<size_t>(lane)][static_cast<size_t>(e)];
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      for (int k = 0; k < 16; ++k) c[row][column] += x[row][k] * w[k][column];
    }
  }
}

// Row `from` of `matrix` to row `to`; what is not there stays as it was.
void copy_row(Image& image, int to, const Matrix& matrix, int from, int k) {
  for (int at = 0; at < k && from < matrix.rows; ++at) {
    image[static_cast<size_t>(to * resident_row_bytes(k) / 2 + at)] = matrix.at(from, at);
  }
}

struct Problem {
  Matrix x, w;
  int outputs;
  bool gated;
};

// The sums of the tile at (row_first, column_first), [kRows][kColumns]; its rows' sums of squares
// to `squares`.
template <int kRows, int kColumns>
std::vector<float> tile_sums(const Problem& p, int row_first, int column_first,
                             std::vector<float>& squares) {
  constexpr int kHalf = kColumns / 2;
  const int k = p.x.columns, row_bytes = resident_row_bytes(k);
  Image image(static_cast<size_t>((kRows + kColumns) * row_bytes / 2), std::nanf(""));
  for (int row = 0; row < kRows; ++row) copy_row(image, row, p.x, row_first + row, k);
  for (int row = 0; row < kColumns; ++row) {
    const int second_half = p.gated ? p.outputs : kHalf;
    copy_row(image, kRows + row, p.w, resident_weight_row<kColumns>(column_first, row, second_half),
             k);
  }
  std::vector<float> left(
      static_cast<size_t>(resident_sum_index<kRows, kColumns>(kResidentWarps, 0, 0)),
      std::nanf(""));
  squares.assign(kRows, 0.0f);
  for (int warp = 0; warp < kResidentWarps; ++warp) {
    for (int r = 0; r < kRows / 16; ++r) {
      float first[16][8] = {}, last[16][8] = {};
      for (int step = warp; step < k / kResidentStep; step += kResidentWarps) {
        const auto a = load_matrices<4>(image, row_bytes, 16 * r, step, resident_x_place);
        multiply_add(first, a, a[0], a[2]);
        multiply_add(last, a, a[1], a[3]);
      }
      std::set<int> rows;
      for (int lane = 0; lane < 32; ++lane) {
        if (!resident_has_square(lane)) continue;
        const int row = resident_square_row(lane), sum = resident_square_sum(lane);
        rows.insert(row);
        const int column = resident_sum_column(lane, sum);
        squares[static_cast<size_t>(16 * r + row)] += first[resident_sum_row(lane, sum)][column];
        squares[static_cast<size_t>(16 * r + row + 8)] +=
            last[resident_sum_row(lane, sum + 2)][resident_sum_column(lane, sum + 2)];
      }
      EXPECT_EQ(rows.size(), 8u);
      for (int c = 0; c < kColumns / 8; ++c) {
        float sums[16][8] = {};
        for (int step = warp; step < k / kResidentStep; step += kResidentWarps) {
          const auto a = load_matrices<4>(image, row_bytes, 16 * r, step, resident_x_place);
          const auto b =
              load_matrices<4>(image, row_bytes, kRows + c / 2 * 16, step, resident_weights_place);
          multiply_add(sums, a, b[static_cast<size_t>(c % 2 * 2)],
                       b[static_cast<size_t>(c % 2 * 2 + 1)]);
        }
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 4; ++i) {
            const int row = resident_sum_row(lane, i), column = resident_sum_column(lane, i);
            left[static_cast<size_t>(resident_sum_index<kRows, kColumns>(
                warp, 16 * r + row, 8 * c + column))] = sums[row][column];
          }
        }
      }
    }
  }
  std::vector<float> total;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      float sum = 0;
      for (int warp = 0; warp < kResidentWarps; ++warp) {
        sum += left[static_cast<size_t>(resident_sum_index<kRows, kColumns>(warp, row, column))];
      }
      total.push_back(sum);
    }
  }
  return total;
}

float product(const Problem& p, int row, int of) {
  float sum = 0;
  for (int k = 0; k < p.x.columns; ++k) sum += p.x.at(row, k) * p.w.at(of, k);
  return sum;
}

template <int kRows, int kColumns>
void expect_products(int m, int outputs, int k, bool gated) {
  SCOPED_TRACE(std::to_string(kRows) + " x " + std::to_string(kColumns) + " M" + std::to_string(m) +
               " N" + std::to_string(outputs) + " K" + std::to_string(k) + (gated ? " gated" : ""));
  Rng rng(static_cast<uint64_t>(m * 1000 + outputs + k));
  const Problem p{Matrix::random(rng, m, k), Matrix::random(rng, gated ? 2 * outputs : outputs, k),
                  outputs, gated};
  const int columns = gated ? kColumns / 2 : kColumns;
  for (int row_first = 0; row_first < m; row_first += kRows) {
    for (int column_first = 0; column_first < outputs; column_first += columns) {
      std::vector<float> squares;
      const std::vector<float> sums =
          tile_sums<kRows, kColumns>(p, row_first, column_first, squares);
      for (int row = 0; row < kRows && row_first + row < m; ++row) {
        float square = 0;
        for (int i = 0; i < k; ++i)
          square += p.x.at(row_first + row, i) * p.x.at(row_first + row, i);
        EXPECT_EQ(squares[static_cast<size_t>(row)], square);
        for (int column = 0; column < columns && column_first + column < outputs; ++column) {
          const auto at = static_cast<size_t>(row * kColumns + column);
          EXPECT_EQ(sums[at], product(p, row_first + row, column_first + column));
          if (!gated) continue;
          EXPECT_EQ(sums[at + kColumns / 2],
                    product(p, row_first + row, outputs + column_first + column));
        }
      }
    }
  }
}

TEST(ResidentLayout, TilesOfEverySizeAreProducts) {
  for (const bool gated : {false, true}) {
    expect_products<16, 16>(5, 20, 48, gated);
    expect_products<16, 32>(17, 34, 64, gated);
    expect_products<16, 64>(16, 70, 32, gated);
    expect_products<32, 16>(33, 18, 80, gated);
    expect_products<32, 32>(32, 32, 144, gated);
    expect_products<32, 64>(20, 66, 48, gated);
    expect_products<64, 16>(65, 16, 16, gated);
    expect_products<64, 32>(50, 40, 80, gated);
  }
}

TEST(ResidentPlan, CoversAllAndFitsIntoSharedMemory) {
  for (const int64_t k : {8, 64, 576, 1536, 2048, 3616}) {
    for (const int64_t n : {16, 576, 960, 3072}) {
      for (const int64_t m : {1, 8, 64, 100, 256, 8192}) {
        for (const bool gated : {false, true}) {
          const ResidentPlan plan = plan_resident({m, n, k, gated, true}, 132);
          if (k > 3000 && plan.tile_rows == 0) continue;
          ASSERT_GT(plan.tile_rows, 0) << m << " " << n << " " << k;
          EXPECT_LE(plan.shared_bytes, 227 << 10);
          EXPECT_GE(int64_t{plan.row_tiles} * plan.tile_rows, m);
          EXPECT_LT(int64_t{plan.row_tiles - 1} * plan.tile_rows, m);
          EXPECT_GE(int64_t{plan.column_tiles} * plan.tile_columns, n);
        }
      }
    }
  }
  EXPECT_EQ(plan_resident({1, 64, 4864, false, false}, 132).tile_rows, 0);
}

// Whether a kernel fits must not depend on M where a row's bits must not.
TEST(ResidentPlan, FitsAtEveryNumberOfRowsOrAtNone) {
  for (int64_t k = 8; k < 5000; k += 8) {
    const bool one = plan_resident({1, 576, k, false, true}, 132).tile_rows > 0;
    EXPECT_EQ(plan_resident({300, 576, k, false, true}, 132).tile_rows > 0, one) << k;
  }
}

// SmolLM2-135M's layer at 64 rows: a block for most of the 132 multiprocessors.
TEST(ResidentPlan, OfASmallModel) {
  const auto blocks = [](int64_t n, int64_t k, bool gated) {
    const ResidentPlan plan = plan_resident({64, n, k, gated, false}, 132);
    return plan.row_tiles * plan.column_tiles;
  };
  EXPECT_GE(blocks(960, 576, false), 100);
  EXPECT_GE(blocks(3072, 576, true), 90);
  EXPECT_GE(blocks(576, 576, false), 70);
  EXPECT_GE(blocks(576, 1536, false), 100);
}

}  // namespace
}  // namespace headrace::resident_layout_test
