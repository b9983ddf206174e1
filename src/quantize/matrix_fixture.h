// For tests: matrices of made-up numbers, and inputs whose columns depend on each other.
#pragma once

#include <cmath>
#include <random>

#include "quantize/matrix_math.h"

namespace headrace {

inline Matrix random_matrix(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix matrix(rows, columns);
  for (float& value : matrix.values()) value = normal(random);
  return matrix;
}

// [rows, columns]: each column is noise and a share of the one before it; some are large.
inline Matrix related_inputs(int64_t rows, int64_t columns, uint32_t seed) {
  Matrix x = random_matrix(rows, columns, seed);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 1; c < columns; ++c) x.row(r)[c] += 0.8f * x.row(r)[c - 1];
    for (int64_t c = 0; c < columns; c += 13) x.row(r)[c] *= 6.0f;
  }
  return x;
}

// x^T x, by plain loops in double.
inline Matrix gram(const Matrix& x) {
  Matrix h(x.columns(), x.columns());
  for (int64_t i = 0; i < x.columns(); ++i) {
    for (int64_t j = 0; j < x.columns(); ++j) {
      double sum = 0;
      for (int64_t r = 0; r < x.rows(); ++r) sum += double{x.row(r)[i]} * double{x.row(r)[j]};
      h.row(i)[j] = static_cast<float>(sum);
    }
  }
  return h;
}

// sum of squares of (a - b) x^T, by plain loops.
inline double squares_of_products(const Matrix& a, const Matrix& b, const Matrix& x) {
  double all = 0;
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t n = 0; n < a.rows(); ++n) {
      double sum = 0;
      for (int64_t c = 0; c < a.columns(); ++c) {
        sum += double{a.row(n)[c] - b.row(n)[c]} * double{x.row(r)[c]};
      }
      all += sum * sum;
    }
  }
  return all;
}

}  // namespace headrace
