// Linear weights that are matrices on a CUDA device: rows of any type become rows of the model's
// activation type.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "ops/packing/packed_weight.h"
#include "tensor/half.h"
#include "tensor/quantised_row.h"
#include "tensor/uploader.h"

namespace headrace {
namespace {

DType matrix_dtype(LinearCompute compute) {
  switch (compute) {
    case LinearCompute::kFast:
    case LinearCompute::kFastWide:
      return DType::kBF16;
    case LinearCompute::kFloat32:
      return DType::kF32;
    case LinearCompute::kFloat16:
      return DType::kF16;
  }
  __builtin_unreachable();
}

// values[k] -> out, rounded to nearest even.
void store_row(DType dtype, std::span<const float> values, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, values.data(), values.size_bytes());
    return;
  }
  for (const float value : values) {
    const uint16_t bits = dtype == DType::kF16 ? float_to_half(value) : float_to_bfloat16(value);
    std::memcpy(out, &bits, 2);
    out += 2;
  }
}

// The rows of one source, in its row order, as `dtype`. Owns what it needs but the source's memory.
class RowConverter {
 public:
  RowConverter(const LinearSource& source, DType dtype)
      : source_(source),
        weight_(source.weight),
        row_order_(source.row_order.begin(), source.row_order.end()),
        dtype_(dtype),
        bytes_(*row_bytes(dtype, weight_.columns())) {
    source_.row_order = {};
  }

  // Rows [first, last), dense.
  void operator()(int64_t first, int64_t last, std::byte* out) const {
    if (source_.reader != nullptr) return convert_made(first, last, out);
    if (weight_.dtype == dtype_ && row_order_.empty() && weight_.row_stride == bytes_) {
      std::memcpy(out, weight_.row(first), static_cast<size_t>((last - first) * bytes_));
      return;
    }
    std::vector<float> values(static_cast<size_t>(weight_.columns()));
    for (int64_t r = first; r < last; ++r, out += bytes_) {
      const int64_t from = from_row(r);
      if (weight_.dtype == dtype_) {
        std::memcpy(out, weight_.row(from), static_cast<size_t>(bytes_));
        continue;
      }
      dequantise_row(weight_, from, values.data());
      store_row(dtype_, values, out);
    }
  }

 private:
  int64_t from_row(int64_t r) const {
    return row_order_.empty() ? r : row_order_[static_cast<size_t>(r)];
  }

  void convert_made(int64_t first, int64_t last, std::byte* out) const {
    constexpr int64_t kRows = kLinearGroupRows;
    std::vector<float> values(static_cast<size_t>(weight_.columns()));
    std::vector<std::byte> made(static_cast<size_t>(kRows * weight_.row_stride));
    for (; first < last; first += kRows) {
      std::vector<int64_t> rows;
      for (int64_t r = first; r < std::min(first + kRows, last); ++r) rows.push_back(from_row(r));
      source_.read(rows, made.data());
      for (size_t i = 0; i < rows.size(); ++i, out += bytes_) {
        const auto stride = static_cast<size_t>(weight_.row_stride);
        dequantise_row(weight_.dtype, std::span(made).subspan(i * stride, stride), values);
        store_row(dtype_, values, out);
      }
    }
  }

  LinearSource source_;  // holds what is read
  ConstTensorView weight_;
  std::vector<int32_t> row_order_;
  DType dtype_;
  int64_t bytes_;  // of a row
};

}  // namespace

Result<LinearWeight> LinearWeight::start_matrix(Device& device, Uploader& uploader,
                                                std::span<const LinearSource> sources,
                                                LinearCompute compute) {
  LinearWeight weight;
  weight.compute_ = compute;
  weight.k_ = sources[0].weight.columns();
  for (const LinearSource& source : sources) weight.n_ += source.rows();
  const DType dtype = matrix_dtype(compute);
  const int64_t bytes = *row_bytes(dtype, weight.k_);
  HR_ASSIGN_OR_RETURN(weight.buffer_, device.allocate(weight.n_ * bytes));
  weight.matrix_ = {weight.buffer_.data(), dtype, Shape{weight.n_, weight.k_}};
  std::byte* at = weight.buffer_.data();
  for (const LinearSource& source : sources) {
    const int64_t rows = source.rows();
    uploader.start(at, rows, bytes, RowConverter(source, dtype));
    at += rows * bytes;
  }
  return weight;
}

LinearWeight LinearWeight::matrix_at(Device& device, const ConstTensorView& matrix) {
  LinearWeight weight;
  weight.n_ = matrix.rows();
  weight.k_ = matrix.columns();
  weight.matrix_ = matrix;
  weight.buffer_ = Buffer(&device, nullptr, matrix.rows() * matrix.row_stride);
  return weight;
}

}  // namespace headrace
