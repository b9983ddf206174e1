// The body of the rope_kv kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/attention/rope_kv_row.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

void rotate_head(const float* cos, const float* sin, int64_t pairs, float* head) {
  for (int64_t i = 0; i < pairs; i += 16) {
    const int64_t left = pairs - i;
    const Vec16 c = load_up_to(cos + i, left, 0.0f);
    const Vec16 s = load_up_to(sin + i, left, 0.0f);
    const Vec16 a = load_up_to(head + i, left, 0.0f);
    const Vec16 b = load_up_to(head + pairs + i, left, 0.0f);
    store_up_to(head + i, fnma(b, s, mul(a, c)), left);
    store_up_to(head + pairs + i, fma(a, s, mul(b, c)), left);
  }
}

struct F32Cache {
  using Element = float;
  static void store_vector(std::byte* to, Vec16 a) { store(reinterpret_cast<float*>(to), a); }
};
struct F16Cache {
  using Element = uint16_t;
  static void store_vector(std::byte* to, Vec16 a) { store_f16(to, a); }
};

// head_dim is a multiple of 16.
template <class Cache>
void write_head(const float* k, const float* v, int64_t head_dim, std::byte* key,
                std::byte* value) {
  using Element = typename Cache::Element;
  alignas(64) Element converted[16];
  auto* key_components = reinterpret_cast<Element*>(key);
  for (int64_t d = 0; d < head_dim; d += 16) {
    Cache::store_vector(value + d * static_cast<int64_t>(sizeof(Element)), load(v + d));
    Cache::store_vector(reinterpret_cast<std::byte*>(converted), load(k + d));
    for (int64_t i = 0; i < 16; ++i) key_components[(d + i) * 16] = converted[i];
  }
}

template <class Cache>
void write_token(const RopeKvRow& row) {
  const float* k = row.q + row.query_heads * row.head_dim;  // [kv_heads, head_dim]
  const float* v = k + row.kv_heads * row.head_dim;         // [kv_heads, head_dim]
  const int64_t head_bytes =
      16 * row.head_dim * static_cast<int64_t>(sizeof(typename Cache::Element));
  for (int64_t head = 0; head < row.kv_heads; ++head) {
    write_head<Cache>(k + head * row.head_dim, v + head * row.head_dim, row.head_dim,
                      row.key + head * head_bytes, row.value + head * head_bytes);
  }
}

void rope_kv_row(const RopeKvRow& row) {
  for (int64_t head = 0; head < row.query_heads + row.kv_heads; ++head) {
    rotate_head(row.cos, row.sin, row.pairs, row.q + head * row.head_dim);
  }
  if (row.half) {
    write_token<F16Cache>(row);
  } else {
    write_token<F32Cache>(row);
  }
}

}  // namespace
}  // namespace headrace
