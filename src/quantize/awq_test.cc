#include "quantize/awq.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "quantize/matrix_fixture.h"
#include "quantize/quantised_matrix.h"

namespace headrace::awq_test {
namespace {

class AwqTest : public testing::Test {
 protected:
  AwqTest() {
    inputs_.h = gram(x_);
    inputs_.rows = x_.rows();
    inputs_.magnitudes.resize(static_cast<size_t>(x_.columns()));
    inputs_.squares.resize(inputs_.magnitudes.size());
    for (int64_t r = 0; r < x_.rows(); ++r) {
      for (int64_t c = 0; c < x_.columns(); ++c) {
        inputs_.magnitudes[static_cast<size_t>(c)] += std::fabs(double{x_.row(r)[c]});
      }
    }
  }
  double loss(const Matrix& quantised) { return squares_of_products(quantised, weights_, x_); }

  const IntegerGrid grid_{.bits = 4, .group = 32};
  const Matrix weights_ = random_matrix(20, 96, 1);
  const Matrix x_ = related_inputs(400, 96, 2);
  InputStatistics inputs_;
  const std::unique_ptr<Device> device_ = create_cpu_device(2);
  MatrixMath math_{*device_};
};

TEST_F(AwqTest, ProductErrorIsThatOfTheProducts) {
  const Matrix q = dequantise(device_->pool(), quantise_nearest(device_->pool(), weights_, grid_));
  const auto error = product_error(math_, weights_, q, inputs_.h);
  ASSERT_TRUE(error.ok());
  EXPECT_NEAR(error->changed / loss(q), 1.0, 1e-3);
  EXPECT_NEAR(error->all / loss(Matrix(20, 96)), 1.0, 1e-3);
}

TEST_F(AwqTest, ScalesOfColumnsLoseLess) {
  const Matrix* matrices[] = {&weights_};
  const auto scales = search_column_scales(math_, matrices, inputs_, grid_);
  ASSERT_TRUE(scales.ok());
  ASSERT_EQ(scales->size(), 96u);
  EXPECT_GT((*scales)[13], (*scales)[14]);  // the inputs of column 13 are large
  Matrix scaled = weights_;
  for (int64_t r = 0; r < scaled.rows(); ++r) {
    for (int64_t c = 0; c < scaled.columns(); ++c) {
      scaled.row(r)[c] *= (*scales)[static_cast<size_t>(c)];
    }
  }
  Matrix q = dequantise(device_->pool(), quantise_nearest(device_->pool(), scaled, grid_));
  for (int64_t r = 0; r < q.rows(); ++r) {
    for (int64_t c = 0; c < q.columns(); ++c) q.row(r)[c] /= (*scales)[static_cast<size_t>(c)];
  }
  const Matrix nearest =
      dequantise(device_->pool(), quantise_nearest(device_->pool(), weights_, grid_));
  EXPECT_LT(loss(q), 0.9 * loss(nearest));
}

TEST_F(AwqTest, CutRangesLoseLess) {
  Matrix spiky = weights_;
  for (int64_t r = 0; r < spiky.rows(); ++r) spiky.row(r)[r] = 9.0f;  // no input of much there
  const std::vector<float> shrinks = search_shrinks(device_->pool(), spiky, inputs_.h, grid_);
  ASSERT_EQ(shrinks.size(), 60u);
  EXPECT_TRUE(std::ranges::all_of(shrinks, [](float s) { return s >= 0.5f && s <= 1.0f; }));
  const auto loss_of = [&](std::span<const float> by) {
    const auto q = quantise_nearest(device_->pool(), spiky, grid_, by);
    return squares_of_products(dequantise(device_->pool(), q), spiky, x_);
  };
  EXPECT_LT(loss_of(shrinks), loss_of({}));
}

}  // namespace
}  // namespace headrace::awq_test
