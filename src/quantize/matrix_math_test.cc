#include "quantize/matrix_math.h"

#include <gtest/gtest.h>

#include "quantize/matrix_fixture.h"

namespace headrace::matrix_math_test {
namespace {

class MatrixMathTest : public testing::Test {
 protected:
  const std::unique_ptr<Device> device_ = create_cpu_device(2);
  MatrixMath math_{*device_};
};

TEST_F(MatrixMathTest, AddsAProductToPartsOfMatrices) {
  Matrix a = random_matrix(5, 40, 1), b = random_matrix(19, 40, 2), c = random_matrix(7, 30, 3);
  const Matrix before = c;
  // 4 rows and 33 columns of a and b, to the middle of c.
  ASSERT_TRUE(math_
                  .add_product(a.span().part(1, 3, 4, 33), b.span().part(2, 5, 17, 33),
                               c.span().part(2, 6, 4, 17))
                  .ok());
  for (int64_t i = 0; i < c.rows(); ++i) {
    for (int64_t j = 0; j < c.columns(); ++j) {
      double wanted = before.row(i)[j];
      if (i >= 2 && i < 6 && j >= 6 && j < 23) {
        for (int64_t k = 0; k < 33; ++k) {
          wanted += double{a.row(i - 1)[3 + k]} * double{b.row(j - 4)[5 + k]};
        }
      }
      EXPECT_NEAR(c.row(i)[j], wanted, 1e-4) << i << " " << j;
    }
  }
}

// Over the edge of a block of rows.
TEST_F(MatrixMathTest, GramIsTheSumOfProductsOfRowsInItsUpperTriangle) {
  const Matrix x = random_matrix(96, 530, 4);
  Matrix turned(530, 96), h(530, 530);
  for (int64_t r = 0; r < 96; ++r) {
    for (int64_t c = 0; c < 530; ++c) turned.row(c)[r] = x.row(r)[c];
  }
  ASSERT_TRUE(math_.add_gram(turned.span(), h.span()).ok());
  const Matrix wanted = gram(x);
  for (int64_t i = 0; i < 530; ++i) {
    for (int64_t j = i; j < 530; ++j) {
      // BF16 has 8 bits: 96 products of about 1, each off by less than 2^-8, errors of any sign.
      ASSERT_NEAR(h.row(i)[j], wanted.row(i)[j], 0.3) << i << " " << j;
    }
  }
}

// U^T U H is the identity: sizes of one block, an uneven one, and several.
TEST_F(MatrixMathTest, InverseFactorIsThatOfTheInverse) {
  for (const int64_t n : {1, 7, 128, 300, 513}) {
    Matrix h = gram(related_inputs(n + 40, n, 5));
    for (int64_t i = 0; i < n; ++i) h.row(i)[i] += 1.0f;
    const auto factor = math_.inverse_factor(h);
    ASSERT_TRUE(factor.ok()) << factor.status().message();
    // H^-1 e for a few e: |H (U^T U e) - e| is small.
    for (int64_t e = 0; e < n; e += std::max<int64_t>(1, n / 5)) {
      std::vector<double> ue(static_cast<size_t>(n)), inverse(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) ue[static_cast<size_t>(i)] = factor->row(i)[e];
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t k = 0; k <= i; ++k) {
          inverse[static_cast<size_t>(i)] += double{factor->row(k)[i]} * ue[static_cast<size_t>(k)];
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < n; ++k)
          sum += double{h.row(i)[k]} * inverse[static_cast<size_t>(k)];
        ASSERT_NEAR(sum, i == e ? 1.0 : 0.0, 0.02) << n << " " << i;
      }
      for (int64_t i = e + 1; i < n; ++i) ASSERT_EQ(factor->row(i)[e], 0.0f);
    }
  }
}

TEST_F(MatrixMathTest, RefusesAMatrixThatIsNotPositiveDefinite) {
  Matrix h(200, 200);
  for (int64_t i = 0; i < 200; ++i) h.row(i)[i] = i == 30 ? -1.0f : 1.0f;
  const auto factor = math_.inverse_factor(h);
  ASSERT_FALSE(factor.ok());
  EXPECT_EQ(factor.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::matrix_math_test
