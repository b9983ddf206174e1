// What the numbers of a cache mean, in any format: how one is read, and how a token's are written.
// Plain loops: kernels are tested against these.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/attention/kv_view.h"
#include "tensor/float8.h"

namespace headrace {

// Component d of a token as f32, in any format.
inline float load_number(const KvHeadView& head, int64_t token, int32_t d) {
  const std::byte* at = head.number(token, d);
  if (head.format == KvFormat::kFp8) return e4m3_to_float(static_cast<uint8_t>(*at));
  if (!has_scales(head.format)) return load_kv(kv_element(head.format), at);
  const float scale = bfloat16_to_float(*head.scale(token, d));
  if (!has_4_bits(head.format)) return static_cast<float>(static_cast<int8_t>(*at)) * scale;
  const int bits = static_cast<int>(*at) >> (head.half_byte(token, d).upper ? 4 : 0) & 15;
  return static_cast<float>(bits - 8) * scale;
}
inline float load_key(const KvLayerView& kv, int64_t slot, int32_t head, int32_t d) {
  return load_number(k_head(kv, slot / kv.block_tokens, head), slot % kv.block_tokens, d);
}
inline float load_value(const KvLayerView& kv, int64_t slot, int32_t head, int32_t d) {
  return load_number(v_head(kv, slot / kv.block_tokens, head), slot % kv.block_tokens, d);
}

// The scale of numbers of which this is the largest magnitude, in BF16: less than 2^-100 is 0. It
// needs range and no precision, as numbers are divided by what was rounded: 127 steps stay 127.
inline uint16_t int8_scale(float largest) {
  return largest < 0x1p-100f ? uint16_t{0} : float_to_bfloat16(largest / 127.0f);
}

// The scale of 4-bit numbers of which this has the largest magnitude (of two the negative one).
inline uint16_t int4_scale(float largest) {
  return std::abs(largest) < 0x1p-100f ? uint16_t{0} : float_to_bfloat16(largest / -8.0f);
}
// Components [first, last) of a token, which share a scale.
inline void store_4_bits(const KvHeadView& head, int64_t token, const float* numbers, int32_t first,
                         int32_t last) {
  float largest = 0.0f;
  bool finite = true;
  for (int32_t d = first; d < last; ++d) {
    const float number = numbers[d];
    finite = finite && std::isfinite(number);
    if (std::abs(number) > std::abs(largest) || number == -std::abs(largest)) largest = number;
  }
  const uint16_t scale = finite ? int4_scale(largest) : uint16_t{0x7fc0};
  const float inverse = finite && scale != 0 ? 1.0f / bfloat16_to_float(scale) : 0.0f;
  *head.scale(token, first) = scale;
  for (int32_t d = first; d < last; ++d) {
    const float steps = inverse == 0.0f ? 0.0f : std::nearbyint(numbers[d] * inverse);
    const int bits = static_cast<int>(std::clamp(steps, -8.0f, 7.0f)) + 8;
    const KvHeadView::HalfByte half = head.half_byte(token, d);
    const int other = static_cast<int>(*half.at) & (half.upper ? 0x0f : 0xf0);
    *half.at = static_cast<std::byte>(other | (half.upper ? bits << 4 : bits));
  }
}

// A head in place of itself: the Hadamard transform of each of its runs of as many components as
// the largest power of 2 that divides their number, divided by the root of that. Its own inverse;
// products of two heads stay as they are.
inline void mix_head(float* head, int32_t dim) {
  const int32_t run = dim & -dim;
  for (int32_t distance = 1; distance < run; distance *= 2) {
    for (int32_t d = 0; d < dim; ++d) {
      if ((d & distance) != 0) continue;
      const float a = head[d], b = head[d + distance];
      head[d] = a + b;
      head[d + distance] = a - b;
    }
  }
  const float factor = 1.0f / std::sqrt(static_cast<float>(run));
  for (int32_t d = 0; d < dim; ++d) head[d] *= factor;
}

// All components of a token. Where a format has scales, one number that is not finite makes its
// group NaN.
inline void store_numbers(const KvHeadView& head, int64_t token, const float* numbers) {
  if (head.format == KvFormat::kFp8) {
    for (int32_t d = 0; d < head.dim; ++d) {
      *head.number(token, d) = std::byte{float_to_e4m3(numbers[d])};
    }
    return;
  }
  if (!has_scales(head.format)) {
    for (int32_t d = 0; d < head.dim; ++d) {
      store_kv(kv_element(head.format), numbers[d], head.number(token, d));
    }
    return;
  }
  const int32_t group = kv_group(head.format, head.dim);
  for (int32_t first = 0; first < head.dim; first += group) {
    const int32_t last = std::min(first + group, head.dim);
    if (has_4_bits(head.format)) {
      store_4_bits(head, token, numbers, first, last);
      continue;
    }
    float largest = 0.0f;
    bool finite = true;
    for (int32_t d = first; d < last; ++d) {
      largest = std::max(largest, std::abs(numbers[d]));
      finite = finite && std::isfinite(numbers[d]);
    }
    const uint16_t scale = finite ? int8_scale(largest) : uint16_t{0x7fc0};
    const float inverse = finite && scale != 0 ? 1.0f / bfloat16_to_float(scale) : 0.0f;
    *head.scale(token, first) = scale;
    for (int32_t d = first; d < last; ++d) {
      const float steps = inverse == 0.0f ? 0.0f : std::nearbyint(numbers[d] * inverse);
      *reinterpret_cast<int8_t*>(head.number(token, d)) = static_cast<int8_t>(steps);
    }
  }
}
inline void store_key(const KvLayerView& kv, int64_t slot, int32_t head, const float* numbers) {
  store_numbers(k_head(kv, slot / kv.block_tokens, head), slot % kv.block_tokens, numbers);
}
inline void store_value(const KvLayerView& kv, int64_t slot, int32_t head, const float* numbers) {
  store_numbers(v_head(kv, slot / kv.block_tokens, head), slot % kv.block_tokens, numbers);
}
inline void store_index_key(const KvLayerView& kv, int64_t slot, const float* numbers) {
  store_numbers(index_head(kv, slot / kv.block_tokens), slot % kv.block_tokens, numbers);
}

}  // namespace headrace
