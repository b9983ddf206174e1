#include "tensor/quantised_row.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "tensor/block_quants.h"
#include "tensor/half.h"
#include "tensor/quantise_q4_k.h"

namespace headrace {
namespace {

constexpr size_t kBlock = 32;

template <class T>
T load_value(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}
template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

template <class T, class Convert>
void dequantise_plain(const std::byte* packed, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = convert(load_value<T>(packed + i * sizeof(T)));
}

template <class T, class Convert>
void quantise_plain(std::span<const float> row, std::byte* packed, Convert convert) {
  for (size_t i = 0; i < row.size(); ++i) store<T>(packed + i * sizeof(T), convert(row[i]));
}

// ---- Q8_0: half d; int8 q[32]
void quantise_q8_0(const float* x, std::byte* block) {
  float magnitude = 0;
  for (size_t i = 0; i < kBlock; ++i) magnitude = std::max(magnitude, std::fabs(x[i]));
  const float d = magnitude / 127.0f;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  store(block, float_to_half(d));
  for (size_t i = 0; i < kBlock; ++i) {
    store(block + 2 + i, static_cast<int8_t>(std::roundf(x[i] * inverse)));
  }
}

// ---- 4 bits: byte j holds element j in its low half and element j + 16 in its high half
template <class Quant>
void pack_nibbles(std::byte* quants, Quant quant) {
  for (size_t j = 0; j < kBlock / 2; ++j) {
    store(quants + j, static_cast<uint8_t>(quant(j) | (quant(j + kBlock / 2) << 4)));
  }
}

// ---- Q4_0: half d; 16 bytes of quants
void quantise_q4_0(const float* x, std::byte* block) {
  float extreme = 0;  // the value of largest magnitude becomes quant 0, which is -8 d
  for (size_t i = 0; i < kBlock; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  const float d = extreme / -8.0f;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  store(block, float_to_half(d));
  pack_nibbles(block + 2, [&](size_t i) {
    // One rounding of the product and sum, as a fused multiply-add does.
    const auto q =
        static_cast<float>(static_cast<double>(x[i]) * static_cast<double>(inverse) + 8.5);
    return static_cast<int>(std::clamp(q, 0.0f, 15.0f));
  });
}

// ---- Q4_1: half d; half m; 16 bytes of quants
void quantise_q4_1(const float* x, std::byte* block) {
  const auto [least, most] = std::minmax_element(x, x + kBlock);
  const float m = *least;
  const float d = (*most - m) / 15.0f;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  store(block, float_to_half(d));
  store(block + 2, float_to_half(m));
  pack_nibbles(block + 4, [&](size_t i) {
    return static_cast<int>(std::clamp((x[i] - m) * inverse + 0.5f, 0.0f, 15.0f));
  });
}

template <class Block>
void for_each_block(DType dtype, size_t elements, Block block) {
  const DTypeInfo& info = dtype_info(dtype);
  const auto columns = static_cast<size_t>(info.block_elements);
  for (size_t i = 0; i < elements / columns; ++i) {
    block(i * columns, i * static_cast<size_t>(info.block_bytes));
  }
}

void dequantise_blocks(DType dtype, const std::byte* packed, std::span<float> out) {
  BlockQuants block;
  for_each_block(dtype, out.size(), [&](size_t element, size_t byte) {
    unpack_block(dtype, packed + byte, block);
    dequantise_block(block, out.data() + element);
  });
}

void check_sizes(DType dtype, size_t elements, size_t bytes) {
  const auto expected = row_bytes(dtype, static_cast<int64_t>(elements));
  CHECK(expected.has_value() && *expected == static_cast<int64_t>(bytes));
}

}  // namespace

void dequantise_row(DType dtype, std::span<const std::byte> packed, std::span<float> out) {
  check_sizes(dtype, out.size(), packed.size());
  const std::byte* data = packed.data();
  switch (dtype) {
    case DType::kF32:
      return dequantise_plain<float>(data, out, [](float v) { return v; });
    case DType::kF16:
      return dequantise_plain<uint16_t>(data, out, half_to_float);
    case DType::kBF16:
      return dequantise_plain<uint16_t>(data, out, bfloat16_to_float);
    case DType::kI32:
      return dequantise_plain<int32_t>(data, out, [](int32_t v) { return static_cast<float>(v); });
    case DType::kI8:
      return dequantise_plain<int8_t>(data, out, [](int8_t v) { return static_cast<float>(v); });
    case DType::kU8:
      return dequantise_plain<uint8_t>(data, out, [](uint8_t v) { return static_cast<float>(v); });
    default:
      return dequantise_blocks(dtype, data, out);
  }
}

void dequantise_row(const ConstTensorView& view, int64_t i, float* out) {
  const auto count = static_cast<size_t>(view.columns());
  const auto bytes = static_cast<size_t>(*row_bytes(view.dtype, view.columns()));
  dequantise_row(view.dtype, {view.row(i), bytes}, {out, count});
}

void quantise_row(DType dtype, std::span<const float> row, std::span<std::byte> packed) {
  check_sizes(dtype, row.size(), packed.size());
  std::byte* data = packed.data();
  const auto blocks = [&](void (*quantise)(const float*, std::byte*)) {
    for_each_block(dtype, row.size(), [&](size_t element, size_t byte) {
      quantise(row.data() + element, data + byte);
    });
  };
  switch (dtype) {
    case DType::kF32:
      return quantise_plain<float>(row, data, [](float v) { return v; });
    case DType::kF16:
      return quantise_plain<uint16_t>(row, data, float_to_half);
    case DType::kBF16:
      return quantise_plain<uint16_t>(row, data, float_to_bfloat16);
    case DType::kQ8_0:
      return blocks(quantise_q8_0);
    case DType::kQ4_0:
      return blocks(quantise_q4_0);
    case DType::kQ4_1:
      return blocks(quantise_q4_1);
    case DType::kQ4_K:
      return blocks(quantise_q4_k);
    default:
      CHECK_MSG(false, "weights are not quantised to this type");
  }
}

}  // namespace headrace
