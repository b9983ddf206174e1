// The scales of a quantised matrix of a Hugging Face file: F16, BF16 or F32 numbers by row and by
// group or block of columns.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "tensor/half.h"
#include "weights/hub_matrix.h"

namespace headrace {

class HubScales {
 public:
  HubScales() = default;
  // Number [row, group] lies at row * row_step + group * group_step. REQUIRES: they are within
  HubScales(const SafetensorsTensor& tensor, int64_t row_step, int64_t group_step)
      : tensor_(&tensor),
        bytes_(tensor.bytes.data()),
        dtype_(tensor.type->dtype.value_or(DType::kI32)),
        row_step_(row_step),
        group_step_(group_step) {}

  static bool is_readable(const SafetensorsTensor& tensor) {
    const auto dtype = tensor.type->dtype;
    return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32;
  }
  // That each is a number other than 0 which an f16 holds, where `as_half`.
  Status check(bool as_half) const;

  float at(int64_t row, int64_t group) const {
    return value(row * row_step_ + group * group_step_);
  }
  // The nearest f16.
  uint16_t half_at(int64_t row, int64_t group) const {
    const int64_t i = row * row_step_ + group * group_step_;
    return dtype_ == DType::kF16 ? bits(i) : float_to_half(value(i));
  }

 private:
  uint16_t bits(int64_t i) const {
    uint16_t bits;
    std::memcpy(&bits, bytes_ + i * 2, 2);
    return bits;
  }
  float value(int64_t i) const {
    if (dtype_ == DType::kF16) return half_to_float(bits(i));
    if (dtype_ == DType::kBF16) return bfloat16_to_float(bits(i));
    float value;
    std::memcpy(&value, bytes_ + i * 4, 4);
    return value;
  }

  const SafetensorsTensor* tensor_ = nullptr;
  const std::byte* bytes_ = nullptr;
  DType dtype_ = DType::kF32;
  int64_t row_step_ = 0, group_step_ = 0;
};

}  // namespace headrace
