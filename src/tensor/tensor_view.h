// Shape and views of memory that somebody else owns. Row-major, outermost dimension first: a weight
// is [out, in], activations are [tokens, features].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "base/check.h"
#include "tensor/dtype.h"

namespace headrace {

class Shape {
 public:
  static constexpr int kRankMax = 4;
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<int64_t> dims)
      : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit constexpr Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    CHECK(dims.size() <= kRankMax);
    int i = 0;
    for (int64_t d : dims) dims_[static_cast<size_t>(i++)] = d;
  }
  constexpr int rank() const { return rank_; }
  constexpr int64_t operator[](int i) const {
    CHECK(i >= 0 && i < rank_);
    return dims_[static_cast<size_t>(i)];
  }
  // Product of all dimensions, 1 for rank 0; empty when one is negative or it leaves int64.
  std::optional<int64_t> elements() const;
  std::string to_string() const;  // "[49152, 576]"
  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kRankMax> dims_{};
  int rank_ = 0;
};

// Bytes of a dense tensor whose rows (last dimension) are whole blocks; empty when that overflows
// int64 or the last dimension is no whole number of blocks.
std::optional<int64_t> tensor_bytes(DType dtype, const Shape& shape);

template <class Byte>  // std::byte or const std::byte
struct BasicTensorView {
  Byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t row_stride = 0;  // bytes between rows (second last dimension); rows are dense

  BasicTensorView() = default;
  BasicTensorView(Byte* data_in, DType dtype_in, Shape shape_in)
      : data(data_in), dtype(dtype_in), shape(shape_in) {
    const auto bytes = row_bytes(dtype, shape.rank() == 0 ? 1 : shape[shape.rank() - 1]);
    CHECK(bytes.has_value());
    row_stride = *bytes;
  }
  BasicTensorView(Byte* data_in, DType dtype_in, Shape shape_in, int64_t row_stride_in)
      : data(data_in), dtype(dtype_in), shape(shape_in), row_stride(row_stride_in) {}
  // A writable view is also a readable one.
  operator BasicTensorView<const std::byte>() const { return {data, dtype, shape, row_stride}; }

  // For rank 2: number of rows and row i.
  int64_t rows() const { return shape.rank() == 1 ? 1 : shape[0]; }
  int64_t columns() const { return shape[shape.rank() - 1]; }
  Byte* row(int64_t i) const { return data + i * row_stride; }
  // Rows [first, first + count) of a rank-2 view.
  BasicTensorView row_range(int64_t first, int64_t count) const {
    CHECK(shape.rank() == 2 && first >= 0 && count >= 0 && first + count <= shape[0]);
    return {data + first * row_stride, dtype, Shape{count, shape[1]}, row_stride};
  }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

// Typed access. REQUIRES: the view's dtype is T's.
inline float* f32_row(const TensorView& view, int64_t i) {
  return reinterpret_cast<float*>(view.row(i));
}
inline const float* f32_row(const ConstTensorView& view, int64_t i) {
  return reinterpret_cast<const float*>(view.row(i));
}

}  // namespace headrace
