#include "quantize/block_rows.h"

#include <gtest/gtest.h>

#include "quantize/matrix_fixture.h"
#include "quantize/quantised_matrix.h"
#include "tensor/quantised_row.h"

namespace headrace::block_rows_test {
namespace {

struct MadeType {
  DType dtype;
  int bits;
};
constexpr MadeType kMadeTypes[] = {{DType::kQ8_0, 8}, {DType::kQ4_0, 4}, {DType::kQ4_1, 4},
                                   {DType::kQ5_0, 5}, {DType::kQ5_1, 5}, {DType::kQ4_K, 4},
                                   {DType::kQ5_K, 5}, {DType::kQ6_K, 6}};

double weighted_loss(const Matrix& a, const Matrix& b, std::span<const float> importance) {
  double sum = 0;
  for (int64_t r = 0; r < a.rows(); ++r) {
    for (int64_t c = 0; c < a.columns(); ++c) {
      const double d = double{a.row(r)[c]} - double{b.row(r)[c]};
      sum += d * d * (importance.empty() ? 1.0 : double{importance[static_cast<size_t>(c)]});
    }
  }
  return sum;
}

class BlockRows : public testing::Test {
 protected:
  Matrix values(DType dtype, const Matrix& weights, std::span<const float> importance) {
    return dequantise(pool_, BlockMatrix{dtype, weights.rows(), weights.columns(),
                                         quantise_blocks(pool_, weights, dtype, importance)});
  }
  ThreadPool pool_{2};
};

// The mean square of an error of rounding is a twelfth of a step's square; a part's steps reach
// over less than 7 times the spread of its numbers.
TEST_F(BlockRows, LoseWhatTheirBitsSay) {
  const Matrix weights = random_matrix(6, 512, 1);
  for (const auto& [dtype, bits] : kMadeTypes) {
    const double step = 7.0 / ((1 << bits) - 1);
    EXPECT_LT(weighted_loss(values(dtype, weights, {}), weights, {}) / (6 * 512), step * step / 12)
        << dtype_name(dtype);
  }
}

TEST_F(BlockRows, ColumnsOfImportanceLoseLess) {
  const Matrix weights = random_matrix(16, 512, 2);
  std::vector<float> importance(512, 0.01f);
  for (size_t c = 0; c < importance.size(); c += 5) importance[c] = 10.0f;
  for (const auto& [dtype, bits] : kMadeTypes) {
    if (bits == 8) continue;  // takes none
    EXPECT_LT(weighted_loss(values(dtype, weights, importance), weights, importance),
              0.9 * weighted_loss(values(dtype, weights, {}), weights, importance))
        << dtype_name(dtype);
  }
}

TEST_F(BlockRows, ZerosStayZeros) {
  const Matrix zeros(2, 256);
  for (const auto& [dtype, bits] : kMadeTypes) {
    const Matrix back = values(dtype, zeros, {});
    for (const float value : back.values()) EXPECT_EQ(value, 0.0f) << dtype_name(dtype);
  }
}

TEST_F(BlockRows, AreNoWorseThanThoseMadeOnLoad) {
  const Matrix weights = random_matrix(8, 512, 3);
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ4_K}) {
    BlockMatrix loaded{dtype, 8, 512, {}};
    const auto row_size = static_cast<size_t>(*row_bytes(dtype, 512));
    loaded.bytes.resize(8 * row_size);
    for (size_t r = 0; r < 8; ++r) {
      quantise_row(dtype, {weights.row(static_cast<int64_t>(r)), 512},
                   std::span(loaded.bytes).subspan(r * row_size, row_size));
    }
    EXPECT_LT(weighted_loss(values(dtype, weights, {}), weights, {}),
              1.01 * weighted_loss(dequantise(pool_, loaded), weights, {}))
        << dtype_name(dtype);
  }
}

TEST(BlockTypes, RowsThatAreNoBlocksOf256TakeTheNextOf32) {
  EXPECT_EQ(block_type_for(DType::kQ4_K, 512), DType::kQ4_K);
  EXPECT_EQ(block_type_for(DType::kQ4_K, 576), DType::kQ5_0);
  EXPECT_EQ(block_type_for(DType::kQ5_K, 576), DType::kQ5_1);
  EXPECT_EQ(block_type_for(DType::kQ6_K, 576), DType::kQ8_0);
  EXPECT_EQ(block_type_for(DType::kQ4_0, 48), std::nullopt);
}

}  // namespace
}  // namespace headrace::block_rows_test
