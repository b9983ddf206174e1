// For tests and benches: matrices of every weight type in the file's form, with values of a trained
// model's size.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "ops/packing/packed_format.h"
#include "tensor/half.h"
#include "tensor/tensor_view.h"

namespace headrace {

// Types that linear takes.
#define HR_TYPE(name, ...) DType::k##name,
inline constexpr DType kWeightTypes[] = {DType::kF32, DType::kF16, DType::kBF16,
                                         HR_BLOCK_TYPES(HR_TYPE)};
#undef HR_TYPE

// At least `columns`, in whole blocks.
inline int64_t whole_blocks(DType dtype, int64_t columns) {
  const int64_t block = dtype_info(dtype).block_elements;
  return (columns + block - 1) / block * block;
}

struct RandomMatrix {
  DType dtype;
  int64_t n, k;
  std::vector<std::byte> bytes;

  RandomMatrix(Rng& rng, DType dtype_in, int64_t n_in, int64_t k_in)
      : dtype(dtype_in), n(n_in), k(k_in) {
    bytes.resize(static_cast<size_t>(*tensor_bytes(dtype, Shape{n, k})));
    is_quantised(dtype) ? fill_blocks(rng) : fill_floats(rng);
  }
  ConstTensorView view() const { return {bytes.data(), dtype, Shape{n, k}}; }

 private:
  // Where a block has its f16 numbers, and their size for weights of about 0.1.
  struct Halves {
    size_t scale;
    float scale_size;
    size_t minimum = 0;  // 0: there is none
    float minimum_size = 0;
  };
  static Halves halves_of(DType dtype) {
    switch (dtype) {
      case DType::kQ8_0:
      case DType::kIQ4_NL:
      case DType::kQ4_Z:
        return {0, 0.001f};
      case DType::kE2M1:
        return {0, 0.015f};
      case DType::kQ4_1:
      case DType::kQ5_1:
        return {0, 0.01f, 2, -0.1f};
      case DType::kQ2_K:
        return {80, 0.005f, 82, 0.01f};
      case DType::kQ3_K:
        return {108, 0.001f};
      case DType::kQ4_K:
      case DType::kQ5_K:
        return {0, 0.0005f, 2, 0.003f};
      case DType::kQ6_K:
        return {208, 0.0001f};
      case DType::kIQ4_XS:
        return {0, 0.0001f};
      default:
        return {0, 0.01f};
    }
  }

  // The sum of 4 uniforms: near enough to a normal, sigma 1.
  static float normal(Rng& rng) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(rng.next() >> 40) * 0x1p-24f - 0.5f;
    return sum * 1.7320508f;
  }

  void fill_blocks(Rng& rng) {
    const Halves halves = halves_of(dtype);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next());
    const auto block_bytes = static_cast<size_t>(dtype_info(dtype).block_bytes);
    for (size_t at = 0; at < bytes.size(); at += block_bytes) {
      put_16_bits(at + halves.scale,
                  float_to_half((1 + std::abs(normal(rng))) * halves.scale_size));
      if (halves.minimum == 0) continue;
      put_16_bits(at + halves.minimum,
                  float_to_half((1 + std::abs(normal(rng))) * halves.minimum_size));
    }
  }

  void fill_floats(Rng& rng) {
    constexpr float kSmallestNormalHalf = 0x1p-14f;  // kernels may flush what is smaller
    for (size_t i = 0; i < static_cast<size_t>(n * k); ++i) {
      float value = 0.1f * normal(rng);
      if (std::abs(value) < kSmallestNormalHalf) value = 0;
      if (dtype == DType::kF32) {
        std::memcpy(bytes.data() + i * 4, &value, 4);
      } else {
        put_16_bits(i * 2, dtype == DType::kF16 ? float_to_half(value) : float_to_bfloat16(value));
      }
    }
  }

  void put_16_bits(size_t at, uint16_t bits) { std::memcpy(bytes.data() + at, &bits, 2); }
};

}  // namespace headrace
