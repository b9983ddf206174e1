#include "quantize/matrix_math.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "ops/linear/linear.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

constexpr int64_t kBlock = 128;      // columns that are factorised by plain loops
constexpr int64_t kGramBlock = 512;  // rows of a product of a matrix with itself
constexpr int64_t kRowsAtOnce = 8;   // of triangular solves, a thread

ConstTensorView f32_view(const MatrixSpan& matrix) {
  return {reinterpret_cast<const std::byte*>(matrix.data), DType::kF32,
          Shape{matrix.rows, matrix.columns}, matrix.stride * int64_t{sizeof(float)}};
}

// The lower triangle of a block of at most kBlock columns, by plain loops in double; empty: fine,
// else the column whose pivot is not positive.
std::optional<int64_t> factor_block(const MatrixSpan& a) {
  for (int64_t j = 0; j < a.rows; ++j) {
    for (int64_t i = j; i < a.rows; ++i) {
      double sum = a.row(i)[j];
      for (int64_t k = 0; k < j; ++k) sum -= double{a.row(i)[k]} * double{a.row(j)[k]};
      if (i == j) {
        if (!(sum > 0)) return j;
        a.row(j)[j] = static_cast<float>(std::sqrt(sum));
      } else {
        a.row(i)[j] = static_cast<float>(sum / double{a.row(j)[j]});
      }
    }
  }
  return std::nullopt;
}

// The inverse of a lower triangle, in place.
void invert_block(const MatrixSpan& a) {
  const int64_t n = a.rows;
  Matrix inverse(n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      double sum = i == j ? 1.0 : 0.0;
      for (int64_t k = j; k < i; ++k) sum -= double{a.row(i)[k]} * double{inverse.row(k)[j]};
      inverse.row(i)[j] = static_cast<float>(sum / double{a.row(i)[i]});
    }
  }
  for (int64_t i = 0; i < n; ++i) std::copy(inverse.row(i), inverse.row(i) + n, a.row(i));
}

// values := values L^-T of each row of `rows`, L lower [n, n].
void solve_row(float* values, const MatrixSpan& lower) {
  for (int64_t j = 0; j < lower.rows; ++j) {
    const float* const row = lower.row(j);
    double sum = values[j];
    for (int64_t k = 0; k < j; ++k) sum -= double{values[k]} * double{row[k]};
    values[j] = static_cast<float>(sum / double{row[j]});
  }
}

}  // namespace

MatrixMath::MatrixMath(Device& device) : device_(device), stream_(device.create_stream()) {
  CHECK(device.kind() == DeviceKind::kCpu);
}

Status MatrixMath::add_product(const MatrixSpan& a, const MatrixSpan& b, const MatrixSpan& c) {
  CHECK(a.columns == b.columns && a.rows == c.rows && b.rows == c.columns);
  if (a.rows == 0 || b.rows == 0 || a.columns == 0) return ok_status();
  const LinearSource source{f32_view(b)};
  HR_ASSIGN_OR_RETURN(const LinearWeight weight,
                      LinearWeight::pack(device_, {&source, 1}, LinearCompute::kFloat32));
  return add_product(a, weight, c);
}

Status MatrixMath::add_product(const MatrixSpan& a, const LinearWeight& weight,
                               const MatrixSpan& c) {
  const int64_t bytes = linear_workspace_bytes(a.rows, weight) + 4096;
  if (workspace_.size() < bytes) {
    HR_ASSIGN_OR_RETURN(Buffer buffer, device_.allocate(bytes));
    workspace_ = Workspace(std::move(buffer));
  }
  OpContext context{device_, *stream_, workspace_, mesh_};
  Workspace::Mark mark(workspace_);
  linear(context, {.x = f32_view(a),
                   .weight = &weight,
                   .bias = nullptr,
                   .y = {reinterpret_cast<std::byte*>(c.data), DType::kF32,
                         Shape{c.rows, c.columns}, c.stride * int64_t{sizeof(float)}},
                   .output = LinearOutput::kAccumulate});
  return ok_status();
}

Status MatrixMath::add_gram(const MatrixSpan& x, const MatrixSpan& h) {
  const auto row_size = static_cast<size_t>(x.columns) * sizeof(uint16_t);
  std::vector<std::byte> rounded(row_size * static_cast<size_t>(kGramBlock));
  for (int64_t first = 0; first < x.rows; first += kGramBlock) {
    const int64_t count = std::min(kGramBlock, x.rows - first);
    pool().parallel_for(count, 16, [&](int64_t from, int64_t to) {
      for (int64_t r = from; r < to; ++r) {
        quantise_row(DType::kBF16, {x.row(first + r), static_cast<size_t>(x.columns)},
                     std::span(rounded).subspan(static_cast<size_t>(r) * row_size, row_size));
      }
    });
    const LinearSource source{{rounded.data(), DType::kBF16, Shape{count, x.columns}}};
    HR_ASSIGN_OR_RETURN(const LinearWeight weight,
                        LinearWeight::pack(device_, {&source, 1}, LinearCompute::kFast));
    // Columns [first, first + count) of the rows above them and their own.
    HR_RETURN_IF_ERROR(add_product(x.part(0, 0, first + count, x.columns), weight,
                                   h.part(0, first, first + count, count)));
  }
  return ok_status();
}

// Right-looking: a block of columns, what is below it, then its product off the rest.
Status MatrixMath::factor_lower(Matrix& a) {
  const int64_t n = a.rows();
  Matrix negative(n, kBlock);
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = std::min(kBlock, n - first), behind = first + count;
    const MatrixSpan corner = a.span().part(first, first, count, count);
    if (const auto column = factor_block(corner)) {
      return invalid_argument(fmt::format(
          "column {} of {} depends on the others: more calibration text or damping is needed",
          first + *column, n));
    }
    const MatrixSpan panel = a.span().part(behind, first, n - behind, count);
    pool().parallel_for(panel.rows, kRowsAtOnce, [&](int64_t from, int64_t to) {
      for (int64_t r = from; r < to; ++r) {
        solve_row(panel.row(r), corner);
        std::transform(panel.row(r), panel.row(r) + count, negative.row(r),
                       [](float value) { return -value; });
      }
    });
    const MatrixSpan minus(negative.row(0), panel.rows, count, kBlock);
    for (int64_t from = 0; from < panel.rows; from += kGramBlock) {
      const int64_t rows = std::min(kGramBlock, panel.rows - from);
      HR_RETURN_IF_ERROR(add_product(minus.part(from, 0, rows, count),
                                     panel.part(0, 0, from + rows, count),
                                     a.span().part(behind + from, behind, rows, from + rows)));
    }
  }
  return ok_status();
}

// By blocks of rows: row block i of the inverse is L_ii^-1 (I_i - sum over k < i of L_ik X_k).
Status MatrixMath::invert_lower(Matrix& a) {
  const int64_t n = a.rows();
  Matrix turned(n, n);  // the inverse's columns as rows, as far as it is made
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = std::min(kBlock, n - first);
    const MatrixSpan corner = a.span().part(first, first, count, count);
    invert_block(corner);
    Matrix sum(count, std::max<int64_t>(first, 1));
    // turned [column, row]: the sum over rows k of L_ik X_k, b's rows being X's columns.
    HR_RETURN_IF_ERROR(add_product(a.span().part(first, 0, count, first),
                                   turned.span().part(0, 0, first, first),
                                   sum.span().part(0, 0, count, first)));
    pool().parallel_for(count, 1, [&](int64_t from, int64_t to) {
      for (int64_t r = from; r < to; ++r) {
        float* const out = a.row(first + r);
        std::fill(out, out + first, 0.0f);
        for (int64_t k = 0; k <= r; ++k) {
          const float factor = -corner.row(r)[k];
          const float* const from_row = sum.row(k);
          for (int64_t c = 0; c < first; ++c) out[c] += factor * from_row[c];
        }
      }
    });
    pool().parallel_for(first + count, kRowsAtOnce, [&](int64_t from, int64_t to) {
      for (int64_t c = from; c < to; ++c) {
        for (int64_t r = 0; r < count; ++r) {
          turned.row(c)[first + r] = c <= first + r ? a.row(first + r)[c] : 0.0f;
        }
      }
    });
  }
  return ok_status();
}

Result<Matrix> MatrixMath::inverse_factor(const Matrix& h) {
  const int64_t n = h.rows();
  Matrix reversed(n, n);  // lower triangle of H with rows and columns in reverse
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) reversed.row(i)[j] = h.row(n - 1 - i)[n - 1 - j];
  }
  HR_RETURN_IF_ERROR(factor_lower(reversed));
  HR_RETURN_IF_ERROR(invert_lower(reversed));
  Matrix upper(n, n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i; j < n; ++j) upper.row(i)[j] = reversed.row(n - 1 - i)[n - 1 - j];
  }
  return upper;
}

}  // namespace headrace
