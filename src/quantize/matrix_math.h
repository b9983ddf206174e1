// Dense f32 algebra on a device's threads, for matrices of a few thousand columns: products through
// the op `linear`, a Cholesky factorisation in blocks, inverses of triangles. All matrices are
// dense or have a row stride, row-major.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "ops/op.h"
#include "ops/packing/packed_weight.h"
#include "tensor/communicator.h"

namespace headrace {

// Rows of f32, `stride` elements apart.
struct MatrixSpan {
  float* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t stride = 0;

  MatrixSpan() = default;
  MatrixSpan(float* at, int64_t row_count, int64_t column_count)
      : MatrixSpan(at, row_count, column_count, column_count) {}
  MatrixSpan(float* at, int64_t row_count, int64_t column_count, int64_t row_stride)
      : data(at), rows(row_count), columns(column_count), stride(row_stride) {}
  float* row(int64_t i) const { return data + i * stride; }
  MatrixSpan part(int64_t row, int64_t column, int64_t row_count, int64_t column_count) const {
    return {data + row * stride + column, row_count, column_count, stride};
  }
};

// A matrix of its own memory.
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t columns)
      : values_(static_cast<size_t>(rows * columns)), rows_(rows), columns_(columns) {}
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  float* row(int64_t i) { return values_.data() + i * columns_; }
  const float* row(int64_t i) const { return values_.data() + i * columns_; }
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }
  MatrixSpan span() { return {values_.data(), rows_, columns_}; }

 private:
  std::vector<float> values_;
  int64_t rows_ = 0, columns_ = 0;
};

// One thread at a time. The device is a CPU and outlives it.
class MatrixMath {
 public:
  explicit MatrixMath(Device& device);

  ThreadPool& pool() { return device_.pool(); }
  // c += a b^T. a [M, K], b [N, K], c [M, N], which overlaps neither. Errors: memory.
  Status add_product(const MatrixSpan& a, const MatrixSpan& b, const MatrixSpan& c);
  // The upper triangle of h += x x^T, x [K, T], h [K, K]; below it some values change, too. x is
  // rounded to BF16 (sums are f32): errors of its size average out over many columns.
  Status add_gram(const MatrixSpan& x, const MatrixSpan& h);
  // U, upper triangular with H^-1 = U^T U, of a symmetric H [K, K] of which the upper triangle is
  // read (Golub & Van Loan, Matrix Computations, 4.2: the factorisation of the rows and columns in
  // reverse is R R^T with an upper R, and U is R's inverse). kInvalidArgument: H is not positive
  // definite.
  Result<Matrix> inverse_factor(const Matrix& h);

 private:
  Status add_product(const MatrixSpan& a, const LinearWeight& b, const MatrixSpan& c);
  Status factor_lower(Matrix& a);
  Status invert_lower(Matrix& a);

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Workspace workspace_;
  SingleRank rank_;
  Mesh mesh_{&rank_, &rank_, &rank_};
};

}  // namespace headrace
