#include "quantize/awq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace headrace {
namespace {

constexpr int kExponents = 20;          // a = 0, 1/20 ... 19/20
constexpr int64_t kSearchedRows = 512;  // of all matrices that share inputs
constexpr float kScaleMin = 1e-4f;
constexpr int kShrinks = 10;  // 1, 0.95 ... 0.55

// sum of row(d) . row(d H), d [R, K].
Result<double> quadratic_form(MatrixMath& math, Matrix& d, const Matrix& h) {
  Matrix product(d.rows(), d.columns());
  // H is symmetric: its rows are its columns.
  HR_RETURN_IF_ERROR(math.add_product(d.span(), const_cast<Matrix&>(h).span(), product.span()));
  double sum = 0;
  for (size_t i = 0; i < d.values().size(); ++i) {
    sum += double{d.values()[i]} * double{product.values()[i]};
  }
  return sum;
}

// Rows spread evenly over all matrices.
Matrix some_rows(std::span<const Matrix* const> matrices) {
  int64_t all = 0;
  for (const Matrix* matrix : matrices) all += matrix->rows();
  const int64_t step = std::max<int64_t>(1, (all + kSearchedRows - 1) / kSearchedRows);
  Matrix rows((all + step - 1) / step, matrices.front()->columns());
  int64_t at = 0, skip = 0;
  for (const Matrix* matrix : matrices) {
    int64_t r = skip;
    for (; r < matrix->rows(); r += step) {
      std::copy(matrix->row(r), matrix->row(r) + matrix->columns(), rows.row(at++));
    }
    skip = r - matrix->rows();
  }
  CHECK(at == rows.rows());
  return rows;
}

std::vector<float> scales_of_exponent(const InputStatistics& inputs, double exponent) {
  std::vector<float> scales(static_cast<size_t>(inputs.columns()));
  for (size_t c = 0; c < scales.size(); ++c) {
    const double mean =
        inputs.magnitudes[c] / static_cast<double>(std::max<int64_t>(inputs.rows, 1));
    scales[c] = std::max(static_cast<float>(std::pow(mean, exponent)), kScaleMin);
  }
  const auto [least, most] = std::ranges::minmax(scales);
  const float middle = std::sqrt(least * most);
  for (float& scale : scales) scale /= middle;
  return scales;
}

// Q(W s) / s - W.
Matrix scaled_difference(ThreadPool& pool, const Matrix& rows, std::span<const float> scales,
                         const IntegerGrid& grid) {
  Matrix scaled(rows.rows(), rows.columns());
  pool.parallel_for(rows.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      for (int64_t c = 0; c < rows.columns(); ++c) {
        scaled.row(r)[c] = rows.row(r)[c] * scales[static_cast<size_t>(c)];
      }
    }
  });
  const IntegerMatrix q = quantise_nearest(pool, scaled, grid);
  pool.parallel_for(rows.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      q.dequantise_row(r, scaled.row(r));
      for (int64_t c = 0; c < rows.columns(); ++c) {
        scaled.row(r)[c] = scaled.row(r)[c] / scales[static_cast<size_t>(c)] - rows.row(r)[c];
      }
    }
  });
  return scaled;
}

// d H d^T of one group; h its square on the diagonal. `sums` is scratch memory of d's size.
double group_loss(std::span<const float> d, const Matrix& h, int64_t first, std::span<float> sums) {
  std::ranges::fill(sums, 0.0f);
  for (size_t i = 0; i < d.size(); ++i) {
    const float* const row = h.row(first + static_cast<int64_t>(i)) + first;
    const float factor = d[i];
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += factor * row[j];
  }
  double loss = 0;
  for (size_t i = 0; i < d.size(); ++i) loss += double{sums[i]} * double{d[i]};
  return loss;
}

float best_shrink(std::span<const float> values, const Matrix& h, int64_t first,
                  const IntegerGrid& grid, std::span<float> scratch) {
  const std::span<float> difference = scratch.first(values.size());
  float best = 1.0f;
  double best_loss = 0;
  for (int s = 0; s < kShrinks; ++s) {
    const float shrink = 1.0f - 0.05f * static_cast<float>(s);
    const GroupScale scale = group_scale(values, grid, shrink);
    for (size_t c = 0; c < values.size(); ++c) {
      difference[c] = value_of(nearest_step(values[c], scale, grid), scale) - values[c];
    }
    const double loss = group_loss(difference, h, first, scratch.last(values.size()));
    if (s == 0 || loss < best_loss) {
      best = shrink;
      best_loss = loss;
    }
  }
  return best;
}

}  // namespace

Result<std::vector<float>> search_column_scales(MatrixMath& math,
                                                std::span<const Matrix* const> matrices,
                                                const InputStatistics& inputs,
                                                const IntegerGrid& grid) {
  const Matrix rows = some_rows(matrices);
  std::vector<float> best;
  double best_loss = 0;
  for (int e = 0; e < kExponents; ++e) {
    std::vector<float> scales = scales_of_exponent(inputs, static_cast<double>(e) / kExponents);
    Matrix difference = scaled_difference(math.pool(), rows, scales, grid);
    HR_ASSIGN_OR_RETURN(const double loss, quadratic_form(math, difference, inputs.h));
    if (e > 0 && !(loss < best_loss)) continue;
    best = std::move(scales);
    best_loss = loss;
  }
  return best;
}

std::vector<float> search_shrinks(ThreadPool& pool, const Matrix& weights, const Matrix& h,
                                  const IntegerGrid& grid) {
  const int64_t groups = weights.columns() / grid.group;
  std::vector<float> shrinks(static_cast<size_t>(weights.rows() * groups));
  pool.parallel_for(weights.rows(), 4, [&](int64_t first, int64_t last) {
    std::vector<float> scratch(static_cast<size_t>(2 * grid.group));
    for (int64_t r = first; r < last; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t column = g * grid.group;
        shrinks[static_cast<size_t>(r * groups + g)] = best_shrink(
            {weights.row(r) + column, static_cast<size_t>(grid.group)}, h, column, grid, scratch);
      }
    }
  });
  return shrinks;
}

Result<ProductError> product_error(MatrixMath& math, const Matrix& weights, const Matrix& quantised,
                                   const Matrix& h) {
  ProductError error;
  Matrix difference = quantised;
  for (size_t i = 0; i < difference.values().size(); ++i) {
    difference.values()[i] -= weights.values()[i];
  }
  HR_ASSIGN_OR_RETURN(error.changed, quadratic_form(math, difference, h));
  Matrix all = weights;
  HR_ASSIGN_OR_RETURN(error.all, quadratic_form(math, all, h));
  return error;
}

}  // namespace headrace
