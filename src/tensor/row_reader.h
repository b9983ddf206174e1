// RowReader: a matrix whose rows lie nowhere as a device takes them, but are made when they are
// read: weights as the formats of Hugging Face files have them, of which whole blocks are made a
// few rows at a time, so that a model is never in memory twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tensor/dtype.h"
#include "tensor/tensor_view.h"

namespace headrace {

class RowReader {
 public:
  virtual ~RowReader() = default;
  virtual DType dtype() const = 0;  // of the rows that it makes
  virtual Shape shape() const = 0;  // [rows, columns]
  // Columns [first_column, first_column + columns) of each of `rows`, one row after the other and
  // dense, to `out`. Cheapest for rows that are neighbours, 16 at a time. Any thread.
  // REQUIRES: rows and columns of shape(), whole blocks of dtype()
  virtual void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
                    std::byte* out) const = 0;
  // The block type that rows of a float type are best multiplied in, where arithmetic need not be
  // exact; empty: their own.
  virtual std::optional<DType> fast_type() const { return {}; }
  // Whether a row is e4m3 numbers with one scale, which read_float8_row() then gives: the numbers
  // of the columns to `out`, a byte each, and the scale. Any thread.
  virtual bool has_float8_rows() const { return false; }
  virtual float read_float8_row(int64_t /*row*/, int64_t /*first_column*/, int64_t /*columns*/,
                                std::byte* /*out*/) const {
    return 0.0f;
  }
};

}  // namespace headrace
