// A matrix of integers of few bits, w = scale (q - zero), with a scale (and a zero point) for each
// group of columns of a row: what nearest, GPTQ and AWQ make.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/matrix_math.h"
#include "tensor/dtype.h"

namespace headrace {

struct IntegerGrid {
  int32_t bits = 4;                // 4 or 8
  int64_t group = 128;             // columns that share a scale; the matrix's are a multiple of it
  bool symmetric = true;           // zero points are 0
  DType scale_type = DType::kF16;  // or BF16, F32: what scales are rounded to

  int32_t least() const { return -(1 << (bits - 1)); }
  int32_t most() const { return (1 << (bits - 1)) - 1; }
};

// Scale and zero point of one group.
struct GroupScale {
  float scale = 0;
  int32_t zero = 0;
};

// The scale that reaches from the least to the largest of `values` (0 among them), times `shrink`;
// of a symmetric grid as far to both sides: largest magnitude / (2^bits - 1) * 2, as
// compressed-tensors' observers have it. A group of zeros gets the scale 1.
GroupScale group_scale(std::span<const float> values, const IntegerGrid& grid, float shrink = 1.0f);
// The scale of a range shrunk by what loses least: sum of counts |w - quant(w)|^2.5: squares
// alone would give up the largest. `counts`: of each value's error.
GroupScale fitted_group_scale(std::span<const float> values, std::span<const float> counts,
                              const IntegerGrid& grid);
// The nearest step, and what it stands for.
int32_t nearest_step(float value, const GroupScale& scale, const IntegerGrid& grid);
inline float value_of(int32_t q, const GroupScale& scale) {
  return static_cast<float>(q - scale.zero) * scale.scale;
}

struct IntegerMatrix {
  IntegerGrid grid;
  int64_t rows = 0, columns = 0;
  std::vector<int8_t> q;           // [rows, columns]
  std::vector<GroupScale> scales;  // [rows, groups]

  IntegerMatrix() = default;
  IntegerMatrix(const IntegerGrid& of, int64_t row_count, int64_t column_count);
  int64_t groups() const { return columns / grid.group; }
  int8_t* row(int64_t i) { return q.data() + i * columns; }
  const int8_t* row(int64_t i) const { return q.data() + i * columns; }
  GroupScale& scale(int64_t row, int64_t group) {
    return scales[static_cast<size_t>(row * groups() + group)];
  }
  const GroupScale& scale(int64_t row, int64_t group) const {
    return scales[static_cast<size_t>(row * groups() + group)];
  }
  void dequantise_row(int64_t row, float* out) const;
};

// Every weight to its nearest step. `shrinks` [rows, groups] or empty: of each group's range.
IntegerMatrix quantise_nearest(ThreadPool& pool, const Matrix& weights, const IntegerGrid& grid,
                               std::span<const float> shrinks = {});

}  // namespace headrace
