// AWQ (Lin et al., 2023): columns of large inputs are scaled up before weights are rounded to
// nearest, and the inputs down, s = mean|x|^a with the a of a grid that loses least; then the range
// of each group is cut where that loses less. Losses are of the products, |(Q(W) - W) X|^2, through
// H = X X^T, so that no inputs need be kept.
#pragma once

#include <span>
#include <vector>

#include "quantize/input_statistics.h"
#include "quantize/integer_matrix.h"

namespace headrace {

// s [K] for matrices that multiply the same inputs, geometric mean 1 of its extremes; all 1 where
// nothing is won. Losses are those of some rows of each.
Result<std::vector<float>> search_column_scales(MatrixMath& math,
                                                std::span<const Matrix* const> matrices,
                                                const InputStatistics& inputs,
                                                const IntegerGrid& grid);

// [rows, groups] how far the range of each group is best shrunk, in [0.5, 1].
std::vector<float> search_shrinks(ThreadPool& pool, const Matrix& weights, const Matrix& h,
                                  const IntegerGrid& grid);

// sum over rows of d H d^T of differences d = `quantised` - `weights`, and of w H w^T: the squares
// that rounding changed of the products, and what there was. `h` whole.
struct ProductError {
  double changed = 0, all = 0;
};
Result<ProductError> product_error(MatrixMath& math, const Matrix& weights, const Matrix& quantised,
                                   const Matrix& h);

}  // namespace headrace
