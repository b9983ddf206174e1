#include "quantize/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace headrace {
namespace {

constexpr int64_t kGptqBlock = 128;  // columns that are rounded before the others hear of it
constexpr int64_t kGptqRows = 4;     // a thread's at once

// Of the mean diagonal: what keeps the factorisation's numbers apart where columns' own are tiny.
constexpr double kDampingOfMean = 1e-6;

std::vector<int64_t> column_order(const Matrix& h, bool act_order) {
  std::vector<int64_t> order(static_cast<size_t>(h.columns()));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (act_order) {
    std::ranges::stable_sort(order,
                             [&](int64_t a, int64_t b) { return h.row(a)[a] > h.row(b)[b]; });
  }
  return order;
}

// H in the order of columns, whole, damped. Where a column's inputs are all 0 nothing of it is
// carried on.
Matrix damped(const Matrix& h, const std::vector<int64_t>& order, double damping) {
  const int64_t n = h.columns();
  double mean = 0;
  for (int64_t i = 0; i < n; ++i) mean += double{h.row(i)[i]} / static_cast<double>(n);
  if (mean == 0) mean = 1;
  Matrix result(n, n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t a = order[static_cast<size_t>(i)];
    for (int64_t j = 0; j < n; ++j) {
      const int64_t b = order[static_cast<size_t>(j)];
      result.row(i)[j] = h.row(std::min(a, b))[std::max(a, b)];
    }
    float& own = result.row(i)[i];
    if (own == 0) own = static_cast<float>(mean);
    own += static_cast<float>(damping) * own + static_cast<float>(kDampingOfMean * mean);
  }
  return result;
}

class GptqPass {
 public:
  // `counts` [K]: how much an error of each column is, as it lies in the file.
  GptqPass(MatrixMath& math, Matrix& weights, const Matrix& factor, std::vector<float> counts,
           const std::vector<int64_t>& order, bool static_groups, const IntegerGrid& grid)
      : math_(math),
        weights_(weights),
        factor_(factor),
        counts_(std::move(counts)),
        order_(order),
        static_groups_(static_groups),
        result_(grid, weights.rows(), weights.columns()),
        errors_(weights.rows(), kGptqBlock) {}

  Result<IntegerMatrix> run() {
    if (static_groups_) {
      find_scales();
      reorder();
    }
    const int64_t n = weights_.columns();
    for (int64_t first = 0; first < n; first += kGptqBlock) {
      const int64_t count = std::min(kGptqBlock, n - first);
      math_.pool().parallel_for(weights_.rows(), kGptqRows, [&](int64_t from, int64_t to) {
        for (int64_t r = from; r < to; ++r) round_block(r, first, count);
      });
      HR_RETURN_IF_ERROR(carry_on(first, count));
    }
    return std::move(result_);
  }

 private:
  // Of the weights as they are.
  void find_scales() {
    const auto group = static_cast<size_t>(result_.grid.group);
    math_.pool().parallel_for(weights_.rows(), kGptqRows, [&](int64_t from, int64_t to) {
      for (int64_t r = from; r < to; ++r) {
        for (int64_t g = 0; g < result_.groups(); ++g) {
          const auto first = static_cast<size_t>(g) * group;
          result_.scale(r, g) =
              fitted_group_scale({weights_.row(r) + first, group},
                                 std::span(counts_).subspan(first, group), result_.grid);
        }
      }
    });
  }

  void reorder() {
    std::vector<float> row(static_cast<size_t>(weights_.columns()));
    for (int64_t r = 0; r < weights_.rows(); ++r) {
      std::copy(weights_.row(r), weights_.row(r) + weights_.columns(), row.begin());
      for (size_t c = 0; c < row.size(); ++c) {
        weights_.row(r)[c] = row[static_cast<size_t>(order_[c])];
      }
    }
  }

  void round_block(int64_t r, int64_t first, int64_t count) {
    const IntegerGrid& grid = result_.grid;
    float* const w = weights_.row(r);
    float* const errors = errors_.row(r);
    for (int64_t j = first; j < first + count; ++j) {
      const int64_t column = order_[static_cast<size_t>(j)];
      GroupScale& scale = result_.scale(r, column / grid.group);
      if (!static_groups_ && column % grid.group == 0) {
        scale = fitted_group_scale(
            {w + j, static_cast<size_t>(grid.group)},
            std::span(counts_).subspan(static_cast<size_t>(j), static_cast<size_t>(grid.group)),
            grid);
      }
      const int32_t q = nearest_step(w[j], scale, grid);
      result_.row(r)[column] = static_cast<int8_t>(q);
      const float* const u = factor_.row(j);
      const float error = (w[j] - value_of(q, scale)) / u[j];
      errors[j - first] = error;
      for (int64_t k = j + 1; k < first + count; ++k) w[k] -= error * u[k];
    }
  }

  // What this block's errors change in the columns behind it.
  Status carry_on(int64_t first, int64_t count) {
    const int64_t behind = first + count, left = weights_.columns() - behind;
    if (left == 0) return ok_status();
    Matrix turned(left, count);  // -U[block, behind]^T
    math_.pool().parallel_for(left, 16, [&](int64_t from, int64_t to) {
      for (int64_t k = from; k < to; ++k) {
        for (int64_t j = 0; j < count; ++j) turned.row(k)[j] = -factor_.row(first + j)[behind + k];
      }
    });
    return math_.add_product(errors_.span().part(0, 0, weights_.rows(), count), turned.span(),
                             weights_.span().part(0, behind, weights_.rows(), left));
  }

  MatrixMath& math_;
  Matrix& weights_;
  const Matrix& factor_;
  const std::vector<float> counts_;
  const std::vector<int64_t>& order_;
  const bool static_groups_;
  IntegerMatrix result_;
  Matrix errors_;  // [N, block]
};

}  // namespace

Result<IntegerMatrix> quantise_gptq(MatrixMath& math, Matrix weights, const Matrix& h,
                                    const IntegerGrid& grid, const GptqOptions& options) {
  CHECK(h.rows() == weights.columns() && h.columns() == weights.columns());
  const std::vector<int64_t> order = column_order(h, options.act_order);
  HR_ASSIGN_OR_RETURN(const Matrix factor, math.inverse_factor(damped(h, order, options.damping)));
  // Scales of whole rows, too, are those of the weights as they were.
  const bool static_groups = options.act_order || kGptqBlock % grid.group != 0;
  // An error of column j that later ones take up as well as they can is (error / U_jj)^2.
  std::vector<float> counts(static_cast<size_t>(h.columns()));
  for (int64_t j = 0; j < h.columns(); ++j) {
    const float u = factor.row(j)[j];
    counts[static_cast<size_t>(order[static_cast<size_t>(j)])] = 1 / (u * u);
  }
  GptqPass pass(math, weights, factor, std::move(counts), order, static_groups, grid);
  return pass.run();
}

}  // namespace headrace
