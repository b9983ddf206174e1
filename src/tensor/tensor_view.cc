#include "tensor/tensor_view.h"

#include <fmt/format.h>

namespace headrace {

std::optional<int64_t> Shape::elements() const {
  int64_t product = 1;
  for (int i = 0; i < rank_; ++i) {
    const int64_t d = dims_[static_cast<size_t>(i)];
    if (d < 0 || __builtin_mul_overflow(product, d, &product)) return std::nullopt;
  }
  return product;
}

std::string Shape::to_string() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) {
    out += fmt::format("{}{}", i > 0 ? ", " : "", dims_[static_cast<size_t>(i)]);
  }
  return out + "]";
}

std::optional<int64_t> tensor_bytes(DType dtype, const Shape& shape) {
  if (shape.rank() == 0) return row_bytes(dtype, 1);
  auto bytes = row_bytes(dtype, shape[shape.rank() - 1]);
  for (int i = 0; bytes && i + 1 < shape.rank(); ++i) {
    int64_t product = 0;
    if (shape[i] < 0 || __builtin_mul_overflow(*bytes, shape[i], &product)) return std::nullopt;
    bytes = product;
  }
  return bytes;
}

}  // namespace headrace
