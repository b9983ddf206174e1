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
  return static_cast<float>(*reinterpret_cast<const int8_t*>(at)) *
         bfloat16_to_float(*head.scale(token, d));
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

}  // namespace headrace
