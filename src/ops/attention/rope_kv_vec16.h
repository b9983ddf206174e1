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

// How a token's numbers go to one head of its block: keys 16 elements apart, values side by side.
template <class Element, void (*kStore)(std::byte*, Vec16)>
struct PlainCache {
  static int64_t head_bytes(int64_t dim) {
    return 16 * dim * static_cast<int64_t>(sizeof(Element));
  }
  static void write_key(const float* k, int64_t dim, int64_t token, std::byte* head) {
    auto* const components = reinterpret_cast<Element*>(head) + token;
    alignas(64) Element converted[16];
    for (int64_t d = 0; d < dim; d += 16) {
      kStore(reinterpret_cast<std::byte*>(converted), load(k + d));
      for (int64_t i = 0; i < 16; ++i) components[(d + i) * 16] = converted[i];
    }
  }
  static void write_value(const float* v, int64_t dim, int64_t token, std::byte* head) {
    std::byte* const to = head + token * dim * static_cast<int64_t>(sizeof(Element));
    for (int64_t d = 0; d < dim; d += 16) {
      kStore(to + d * static_cast<int64_t>(sizeof(Element)), load(v + d));
    }
  }
};
void store_f32(std::byte* to, Vec16 a) { store(reinterpret_cast<float*>(to), a); }
using F32Cache = PlainCache<float, store_f32>;
using F16Cache = PlainCache<uint16_t, store_f16>;

float float_of_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
// Of the BF16 number nearest to a finite one.
uint32_t bf16_bits(float number) {
  const auto bits = __builtin_bit_cast(uint32_t, number);
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

// store_numbers() of kv_numbers.h says what it does.
struct Int8Cache {
  static int64_t head_bytes(int64_t dim) {
    return 16 * (dim + (dim + kKvGroup - 1) / kKvGroup * 2);
  }
  // The integers of a group of `count` numbers; returns their scale's bits.
  static uint16_t quantise(const float* numbers, int64_t count, std::byte* integers) {
    const Vec16 a = load(numbers), b = count > 16 ? load(numbers + 16) : zero();
    const float largest = largest_of(max(absolute(a), absolute(b)));
    const bool finite = !any_nan(a) && !any_nan(b) && largest < __builtin_inff();
    uint32_t scale = finite ? 0 : 0x7fc0;
    if (finite && largest >= 0x1p-100f) scale = bf16_bits(largest / 127.0f);
    if (!finite || scale == 0) {
      store_i8(integers, zero());
      store_i8(integers + 16, zero());
    } else {
      const Vec16 inverse = broadcast(1.0f / float_of_bits(scale << 16));
      store_i8(integers, round_to_integer(mul(a, inverse)));
      store_i8(integers + 16, round_to_integer(mul(b, inverse)));
    }
    return static_cast<uint16_t>(scale);
  }
  static uint16_t* scale_at(std::byte* head, int64_t dim, int64_t d, int64_t token) {
    return reinterpret_cast<uint16_t*>(head + 16 * dim) + d / kKvGroup * 16 + token;
  }
  static int64_t group_at(int64_t d, int64_t dim) {
    return dim - d < kKvGroup ? dim - d : kKvGroup;
  }

  static void write_key(const float* k, int64_t dim, int64_t token, std::byte* head) {
    alignas(32) std::byte integers[kKvGroup];
    for (int64_t d = 0; d < dim; d += kKvGroup) {
      const int64_t count = group_at(d, dim);
      *scale_at(head, dim, d, token) = quantise(k + d, count, integers);
      for (int64_t i = 0; i < count; ++i) head[(d + i) * 16 + token] = integers[i];
    }
  }
  static void write_value(const float* v, int64_t dim, int64_t token, std::byte* head) {
    alignas(32) std::byte integers[kKvGroup];
    for (int64_t d = 0; d < dim; d += kKvGroup) {
      const int64_t count = group_at(d, dim);
      *scale_at(head, dim, d, token) = quantise(v + d, count, integers);
      __builtin_memcpy(head + token * dim + d, integers, static_cast<size_t>(count));
    }
  }
};

struct Int4Cache {
  static int64_t head_bytes(int64_t dim) {
    return 16 * (dim / 2 + (dim + kKvGroup - 1) / kKvGroup * 2);
  }
  // The integers of a group of `count` numbers, 8 added, a byte each; returns their scale's bits.
  static uint16_t quantise(const float* numbers, int64_t count, std::byte* integers) {
    const Vec16 a = load(numbers), b = count > 16 ? load(numbers + 16) : zero();
    const float largest = largest_of(max(absolute(a), absolute(b)));
    const bool finite = !any_nan(a) && !any_nan(b) && largest < __builtin_inff();
    uint32_t scale = finite ? 0 : 0x7fc0;
    if (finite && largest >= 0x1p-100f) {
      const float lowest = -largest_of(max(sub(zero(), a), sub(zero(), b)));
      scale = bf16_bits((lowest == -largest ? largest : -largest) / 8.0f);
    }
    const float inverse = !finite || scale == 0 ? 0.0f : 1.0f / float_of_bits(scale << 16);
    const Vec16 of_a = finite ? a : zero(), of_b = finite ? b : zero();
    store_i8(integers, round_to_integer(mul(of_a, broadcast(inverse))));
    store_i8(integers + 16, round_to_integer(mul(of_b, broadcast(inverse))));
    for (int64_t i = 0; i < 32; ++i) {
      const auto integer = static_cast<int8_t>(integers[i]);
      integers[i] = static_cast<std::byte>((integer > 7 ? 7 : integer) + 8);
    }
    return static_cast<uint16_t>(scale);
  }
  static uint16_t* scale_at(std::byte* head, int64_t dim, int64_t d, int64_t token) {
    return reinterpret_cast<uint16_t*>(head + 8 * dim) + d / kKvGroup * 16 + token;
  }

  static void write_key(const float* k, int64_t dim, int64_t token, std::byte* head) {
    alignas(32) std::byte integers[kKvGroup];
    for (int64_t d = 0; d < dim; d += kKvGroup) {
      const int64_t count = Int8Cache::group_at(d, dim);
      *scale_at(head, dim, d, token) = quantise(k + d, count, integers);
      for (int64_t i = 0; i < count; i += 2) {
        head[(d + i) * 8 + token] = integers[i] | integers[i + 1] << 4;
      }
    }
  }
  static void write_value(const float* v, int64_t dim, int64_t token, std::byte* head) {
    alignas(32) std::byte integers[kKvGroup];
    for (int64_t d = 0; d < dim; d += kKvGroup) {
      const int64_t count = Int8Cache::group_at(d, dim);
      *scale_at(head, dim, d, token) = quantise(v + d, count, integers);
      for (int64_t i = 0; i < count / 2; ++i) {
        const int64_t first = i / 8 * 16 + i % 8;
        head[(token * dim + d) / 2 + i] = integers[first] | integers[first + 8] << 4;
      }
    }
  }
};

template <class Cache>
void write_keys(const RopeKvRow& row) {
  const float* k = row.q + row.query_heads * row.k_dim;  // [kv_heads, k_dim]
  for (int64_t head = 0; head < row.kv_heads; ++head) {
    Cache::write_key(k + head * row.k_dim, row.k_dim, row.token,
                     row.keys + head * Cache::head_bytes(row.k_dim));
  }
}
template <class Cache>
void write_values(const RopeKvRow& row) {
  const float* v = row.q + (row.query_heads + row.kv_heads) * row.k_dim;  // [kv_heads, v_dim]
  for (int64_t head = 0; head < row.kv_heads; ++head) {
    Cache::write_value(v + head * row.v_dim, row.v_dim, row.token,
                       row.values + head * Cache::head_bytes(row.v_dim));
  }
}

void rope_kv_row(const RopeKvRow& row) {
  for (int64_t head = 0; head < row.query_heads + row.kv_heads; ++head) {
    rotate_head(row.cos, row.sin, row.pairs, row.q + head * row.k_dim);
  }
  const auto as = [&](KvFormat format, auto f32, auto f16, auto int8, auto int4) {
    if (format == KvFormat::kInt4) return int4(row);
    format == KvFormat::kF32 ? f32(row) : format == KvFormat::kF16 ? f16(row) : int8(row);
  };
  as(row.k_format, write_keys<F32Cache>, write_keys<F16Cache>, write_keys<Int8Cache>,
     write_keys<Int4Cache>);
  as(row.v_format, write_values<F32Cache>, write_values<F16Cache>, write_values<Int8Cache>,
     write_values<Int4Cache>);
}

}  // namespace
}  // namespace headrace
