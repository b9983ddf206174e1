// Linear weights of a CUDA device: rows of any type become rows of the model's activation type.
#include <cstring>
#include <vector>

#include "ops/packed_weight.h"
#include "tensor/half.h"
#include "tensor/quantised_row.h"
#include "tensor/uploader.h"

namespace headrace {
namespace {

DType matrix_dtype(LinearCompute compute) {
  switch (compute) {
    case LinearCompute::kFast:
      return DType::kBF16;
    case LinearCompute::kFloat32:
      return DType::kF32;
    case LinearCompute::kFloat16:
      return DType::kF16;
  }
  __builtin_unreachable();
}

int64_t row_count(const LinearSource& source) {
  return source.row_order.empty() ? source.weight.rows()
                                  : static_cast<int64_t>(source.row_order.size());
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

// Rows [first, last) of a source, in its row order, as `dtype`.
void convert_rows(const LinearSource& source, DType dtype, int64_t first, int64_t last,
                  std::byte* out) {
  const int64_t k = source.weight.columns();
  const int64_t bytes = *row_bytes(dtype, k);
  std::vector<float> values(static_cast<size_t>(k));
  for (int64_t r = first; r < last; ++r, out += bytes) {
    const int64_t from = source.row_order.empty() ? r : source.row_order[static_cast<size_t>(r)];
    if (source.weight.dtype == dtype) {
      std::memcpy(out, source.weight.row(from), static_cast<size_t>(bytes));
      continue;
    }
    dequantise_row(source.weight, from, values.data());
    store_row(dtype, values, out);
  }
}

}  // namespace

Result<LinearWeight> LinearWeight::pack_matrix(Device& device,
                                               std::span<const LinearSource> sources,
                                               LinearCompute compute) {
  HR_RETURN_IF_ERROR(device.gemm_library().status());  // what will multiply it
  HR_ASSIGN_OR_RETURN(Uploader* const uploader, device.uploader());
  LinearWeight weight;
  weight.matrix_dtype_ = matrix_dtype(compute);
  weight.k_ = sources[0].weight.columns();
  for (const LinearSource& source : sources) weight.n_ += row_count(source);
  const int64_t bytes = *row_bytes(weight.matrix_dtype_, weight.k_);
  HR_ASSIGN_OR_RETURN(weight.buffer_, device.allocate(weight.n_ * bytes));
  std::byte* at = weight.buffer_.data();
  for (const LinearSource& source : sources) {
    HR_RETURN_IF_ERROR(uploader->upload(
        at, row_count(source), bytes, [&](int64_t first, int64_t last, std::byte* out) {
          convert_rows(source, weight.matrix_dtype_, first, last, out);
        }));
    at += row_count(source) * bytes;
  }
  return weight;
}

}  // namespace headrace
