#include "quantize/gptq.h"

#include <gtest/gtest.h>

#include "quantize/matrix_fixture.h"
#include "quantize/quantised_matrix.h"

namespace headrace::gptq_test {
namespace {

constexpr double kTestDamping = 0.01;

// The inverse of a symmetric matrix by Gauss-Jordan, in double.
std::vector<std::vector<double>> inverse_of(const Matrix& h) {
  const auto n = static_cast<size_t>(h.rows());
  std::vector<std::vector<double>> a(n, std::vector<double>(2 * n));
  double mean = 0;
  for (size_t i = 0; i < n; ++i) {
    mean += double{h.row(static_cast<int64_t>(i))[i]} / static_cast<double>(n);
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) a[i][j] = h.row(static_cast<int64_t>(i))[j];
    a[i][i] += kTestDamping * a[i][i] + 1e-6 * mean;
    a[i][n + i] = 1;
  }
  for (size_t p = 0; p < n; ++p) {
    const double pivot = a[p][p];
    for (double& value : a[p]) value /= pivot;
    for (size_t r = 0; r < n; ++r) {
      if (r == p) continue;
      const double factor = a[r][p];
      for (size_t c = 0; c < 2 * n; ++c) a[r][c] -= factor * a[p][c];
    }
  }
  for (auto& row : a) row.erase(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(n));
  return a;
}

// Column j leaves.
void eliminate(std::vector<std::vector<double>>& inverse, size_t j) {
  const std::vector<double> gone = inverse[j];
  for (size_t a = j + 1; a < inverse.size(); ++a) {
    const double factor = inverse[a][j] / gone[j];
    for (size_t b = j + 1; b < inverse.size(); ++b) inverse[a][b] -= factor * gone[b];
  }
}

// What an error of each column counts: 1 / H^-1_jj when it is its turn.
std::vector<float> counts_of(std::vector<std::vector<double>> inverse) {
  std::vector<float> counts;
  for (size_t j = 0; j < inverse.size(); ++j) {
    counts.push_back(static_cast<float>(1 / inverse[j][j]));
    eliminate(inverse, j);
  }
  return counts;
}

// The method's definition (Frantar et al., equations 2 and 3): a column is rounded, the others take
// up d H^-1_j / H^-1_jj, and the column leaves H^-1.
IntegerMatrix plain_gptq(const Matrix& weights, const Matrix& h, const IntegerGrid& grid) {
  IntegerMatrix result(grid, weights.rows(), weights.columns());
  const auto n = static_cast<size_t>(weights.columns());
  std::vector<std::vector<double>> inverse = inverse_of(h);
  const std::vector<float> counts = counts_of(inverse);
  std::vector<std::vector<float>> w;
  for (int64_t r = 0; r < weights.rows(); ++r) {
    w.emplace_back(weights.row(r), weights.row(r) + weights.columns());
  }
  for (size_t j = 0; j < n; ++j) {
    for (size_t r = 0; r < w.size(); ++r) {
      const auto row = static_cast<int64_t>(r), column = static_cast<int64_t>(j);
      GroupScale& scale = result.scale(row, column / grid.group);
      if (column % grid.group == 0) {
        const auto group = static_cast<size_t>(grid.group);
        scale = fitted_group_scale({w[r].data() + j, group}, {counts.data() + j, group}, grid);
      }
      const int32_t q = nearest_step(w[r][j], scale, grid);
      result.row(row)[column] = static_cast<int8_t>(q);
      const double d = (double{w[r][j]} - double{value_of(q, scale)}) / inverse[j][j];
      for (size_t k = j + 1; k < n; ++k) w[r][k] -= static_cast<float>(d * inverse[j][k]);
    }
    eliminate(inverse, j);
  }
  return result;
}

class GptqTest : public testing::Test {
 protected:
  Matrix values(const IntegerMatrix& matrix) { return dequantise(device_->pool(), matrix); }
  const std::unique_ptr<Device> device_ = create_cpu_device(2);
  MatrixMath math_{*device_};
};

// Over the edges of two blocks of columns. Sums differ in order, so that a few steps may.
TEST_F(GptqTest, IsItsDefinition) {
  const Matrix weights = random_matrix(9, 288, 1), x = related_inputs(500, 288, 2);
  const Matrix h = gram(x);
  for (const bool symmetric : {true, false}) {
    const IntegerGrid grid{.bits = 4, .group = 32, .symmetric = symmetric};
    const auto fast = quantise_gptq(math_, weights, h, grid, {.damping = kTestDamping});
    ASSERT_TRUE(fast.ok()) << fast.status().message();
    const IntegerMatrix plain = plain_gptq(weights, h, grid);
    int64_t others = 0;
    for (size_t i = 0; i < plain.q.size(); ++i) others += plain.q[i] != fast->q[i] ? 1 : 0;
    EXPECT_LE(others, std::ssize(plain.q) / 50);
    const double fast_loss = squares_of_products(values(*fast), weights, x);
    const double plain_loss = squares_of_products(values(plain), weights, x);
    EXPECT_NEAR(fast_loss / plain_loss, 1.0, 0.02);
  }
}

TEST_F(GptqTest, LosesLessThanHalfOfWhatNearestDoes) {
  const Matrix weights = random_matrix(24, 192, 3), x = related_inputs(600, 192, 4);
  const Matrix h = gram(x);
  const IntegerGrid grid{.bits = 4, .group = 64};
  const double nearest =
      squares_of_products(values(quantise_nearest(device_->pool(), weights, grid)), weights, x);
  for (const bool act_order : {false, true}) {
    const auto gptq = quantise_gptq(math_, weights, h, grid, {.act_order = act_order});
    ASSERT_TRUE(gptq.ok());
    EXPECT_LT(squares_of_products(values(*gptq), weights, x), 0.5 * nearest) << act_order;
  }
}

// Where no column says anything of another there is nothing to take up.
TEST_F(GptqTest, RoundsToNearestWhereInputsAreIndependent) {
  const Matrix weights = random_matrix(4, 64, 5);
  Matrix h(64, 64);
  for (int64_t i = 0; i < 64; ++i) h.row(i)[i] = static_cast<float>(1 + i % 7);
  const IntegerGrid grid{.bits = 8, .group = 64, .symmetric = false};
  for (const bool act_order : {false, true}) {
    const auto gptq = quantise_gptq(math_, weights, h, grid, {.act_order = act_order});
    ASSERT_TRUE(gptq.ok());
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t c = 0; c < 64; ++c) {
        EXPECT_EQ(gptq->row(r)[c], nearest_step(weights.row(r)[c], gptq->scale(r, 0), grid));
      }
    }
  }
}

// Inputs that were always 0, and more columns than rows of text.
TEST_F(GptqTest, TakesInputsThatSayLittle) {
  const Matrix weights = random_matrix(4, 128, 6);
  Matrix x = related_inputs(20, 128, 7);
  for (int64_t r = 0; r < x.rows(); ++r) x.row(r)[5] = x.row(r)[77] = 0;
  const auto gptq = quantise_gptq(math_, weights, gram(x), {.bits = 4, .group = 128}, {});
  ASSERT_TRUE(gptq.ok()) << gptq.status().message();
  // No more is lost than by nearest, of what the text shows.
  const auto nearest = quantise_nearest(device_->pool(), weights, {.bits = 4, .group = 128});
  EXPECT_LT(squares_of_products(values(*gptq), weights, x),
            squares_of_products(values(nearest), weights, x));
  const Matrix all = values(*gptq);
  for (const float value : all.values()) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace headrace::gptq_test
