#include "tensor/block_quants.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace headrace {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float load_half(const std::byte* at) { return half_to_float(load<uint16_t>(at)); }
int byte_at(const std::byte* at, int i) { return static_cast<int>(at[i]); }

// Bits [shift, shift + width) of byte i.
int field(const std::byte* at, int i, int shift, int width) {
  return (byte_at(at, i) >> shift) & ((1 << width) - 1);
}

// Calls quant(n, i) for column i of the n-th 16: every layout below is even within 16 columns, so
// that compilers vectorise the inner loop.
template <class Quant>
void fill_quants(BlockQuants& out, Quant quant) {
  for (int n = 0; n < out.columns / 16; ++n) {
    int8_t* q = &out.q[static_cast<size_t>(n * 16)];
    for (int i = 0; i < 16; ++i) q[i] = static_cast<int8_t>(quant(n, i));
  }
}

void begin(BlockQuants& out, int32_t columns, int32_t part_columns, bool has_minima) {
  out.columns = columns;
  out.part_columns = part_columns;
  out.has_minima = has_minima;
}

// ---- blocks of 32: one part
void begin_32(BlockQuants& out, const std::byte* scale) {
  begin(out, 32, 32, false);
  out.scale[0] = load_half(scale);
}
void begin_32_with_minimum(BlockQuants& out, const std::byte* scale) {
  begin(out, 32, 32, true);
  out.scale[0] = load_half(scale);
  out.minimum[0] = load_half(scale + 2);
}

// Byte j holds column j in its low half and column j + 16 in its high half.
int nibble_32(const std::byte* quants, int n, int i) { return field(quants, i, n * 4, 4); }
int iq4_32(const std::byte* quants, int n, int i) {
  return kIq4Values[static_cast<size_t>(nibble_32(quants, n, i))];
}

// half d; int8 q[32]
void unpack_q8_0(const std::byte* block, BlockQuants& out) {
  begin_32(out, block);
  fill_quants(out, [&](int n, int i) { return load<int8_t>(block + 2 + n * 16 + i); });
}

// half d; 16 bytes of nibbles
void unpack_q4_0(const std::byte* block, BlockQuants& out) {
  begin_32(out, block);
  fill_quants(out, [&](int n, int i) { return nibble_32(block + 2, n, i) - 8; });
}
void unpack_iq4_nl(const std::byte* block, BlockQuants& out) {
  begin_32(out, block);
  fill_quants(out, [&](int n, int i) { return iq4_32(block + 2, n, i); });
}

// half d; 16 bytes of nibbles
void unpack_e2m1(const std::byte* block, BlockQuants& out) {
  begin_32(out, block);
  fill_quants(out, [&](int n, int i) {
    return kE2m1Values[static_cast<size_t>(nibble_32(block + 2, n, i))];
  });
}

// half d; half m; 16 bytes of nibbles
void unpack_q4_1(const std::byte* block, BlockQuants& out) {
  begin_32_with_minimum(out, block);
  fill_quants(out, [&](int n, int i) { return nibble_32(block + 4, n, i); });
}

// half d; uint8 z; a byte of padding; 16 bytes of nibbles. The product of 11 and 8 bits is exact,
// and so is its sum with d q.
void unpack_q4_z(const std::byte* block, BlockQuants& out) {
  begin(out, 32, 32, true);
  out.scale[0] = load_half(block);
  out.minimum[0] = -(out.scale[0] * static_cast<float>(byte_at(block, 2)));
  fill_quants(out, [&](int n, int i) { return nibble_32(block + 4, n, i); });
}

// half d; (half m;) 32 fifth bits; 16 bytes of nibbles
int five_bits(const std::byte* quants, int n, int i) {
  return nibble_32(quants + 4, n, i) | ((load<uint16_t>(quants + n * 2) >> i) & 1) << 4;
}
void unpack_q5_0(const std::byte* block, BlockQuants& out) {
  begin_32(out, block);
  fill_quants(out, [&](int n, int i) { return five_bits(block + 2, n, i) - 16; });
}
void unpack_q5_1(const std::byte* block, BlockQuants& out) {
  begin_32_with_minimum(out, block);
  fill_quants(out, [&](int n, int i) { return five_bits(block + 4, n, i); });
}

// ---- blocks of 256
// Nibbles of 64 columns lie in 32 bytes: the first 32 columns low, the second 32 high.
int nibble_256(const std::byte* quants, int n, int i) {
  return field(quants, n / 4 * 32 + n % 2 * 16 + i, n / 2 % 2 * 4, 4);
}
// Pairs of bits of 128 columns lie in 32 bytes: each 32 columns two bits above the last.
int pair_256(const std::byte* quants, int n, int i) {
  return field(quants, n / 8 * 32 + n % 2 * 16 + i, n / 2 % 4 * 2, 2);
}
// Single bits of 256 columns lie in 32 bytes: each 32 columns a bit above the last.
int bit_256(const std::byte* quants, int n, int i) {
  return field(quants, n % 2 * 16 + i, n / 2, 1);
}

// scale(p) and minimum(p): the integers of part p.
template <class Scale>
void fill_scales(BlockQuants& out, float d, Scale scale) {
  for (int p = 0; p < out.columns / out.part_columns; ++p) {
    out.scale[static_cast<size_t>(p)] = d * static_cast<float>(scale(p));
  }
}
template <class Minimum>
void fill_minima(BlockQuants& out, float d, Minimum minimum) {
  for (int p = 0; p < out.columns / out.part_columns; ++p) {
    out.minimum[static_cast<size_t>(p)] = -(d * static_cast<float>(minimum(p)));
  }
}

// 16 bytes of scale (low) and minimum (high) nibbles; 64 bytes of pairs; half d; half e
void unpack_q2_k(const std::byte* block, BlockQuants& out) {
  begin(out, 256, 16, true);
  fill_scales(out, load_half(block + 80), [&](int p) { return field(block, p, 0, 4); });
  fill_minima(out, load_half(block + 82), [&](int p) { return field(block, p, 4, 4); });
  fill_quants(out, [&](int n, int i) { return pair_256(block + 16, n, i); });
}

// 32 bytes of third bits; 64 bytes of pairs; 16 scales of 6 bits in 12 bytes; half d
void unpack_q3_k(const std::byte* block, BlockQuants& out) {
  begin(out, 256, 16, false);
  const std::byte* scales = block + 96;
  fill_scales(out, load_half(block + 108), [&](int p) {
    return (field(scales, p % 8, p / 8 * 4, 4) | field(scales, 8 + p % 4, p / 4 * 2, 2) << 4) - 32;
  });
  fill_quants(out, [&](int n, int i) {
    return (pair_256(block + 32, n, i) | bit_256(block, n, i) << 2) - 4;
  });
}

// half d; half e; 8 scales and 8 minima of 6 bits in 12 bytes: the first four of either in the low
// bits of bytes 0.. and 4.., the last four in the halves of bytes 8.. and the high bits of 0.. and
// 4..
void begin_6_bit_scales(const std::byte* block, BlockQuants& out) {
  begin(out, 256, 32, true);
  const std::byte* scales = block + 4;
  fill_scales(out, load_half(block), [&](int p) {
    return p < 4 ? field(scales, p, 0, 6)
                 : field(scales, p + 4, 0, 4) | field(scales, p - 4, 6, 2) << 4;
  });
  fill_minima(out, load_half(block + 2), [&](int p) {
    return p < 4 ? field(scales, p + 4, 0, 6)
                 : field(scales, p + 4, 4, 4) | field(scales, p, 6, 2) << 4;
  });
}

// those 16 bytes; 128 bytes of nibbles
void unpack_q4_k(const std::byte* block, BlockQuants& out) {
  begin_6_bit_scales(block, out);
  fill_quants(out, [&](int n, int i) { return nibble_256(block + 16, n, i); });
}
// those 16 bytes; 32 bytes of fifth bits; 128 bytes of nibbles
void unpack_q5_k(const std::byte* block, BlockQuants& out) {
  begin_6_bit_scales(block, out);
  fill_quants(out, [&](int n, int i) {
    return nibble_256(block + 48, n, i) | bit_256(block + 16, n, i) << 4;
  });
}

// 128 bytes of nibbles; 64 bytes of pairs; int8 scales[16]; half d. Here the nibbles of 128 columns
// lie in 64 bytes: the first 64 columns low, the second 64 high.
void unpack_q6_k(const std::byte* block, BlockQuants& out) {
  begin(out, 256, 16, false);
  fill_scales(out, load_half(block + 208), [&](int p) { return load<int8_t>(block + 192 + p); });
  fill_quants(out, [&](int n, int i) {
    const int nibble = field(block, n / 8 * 64 + n % 4 * 16 + i, n / 4 % 2 * 4, 4);
    return (nibble | pair_256(block + 128, n, i) << 4) - 32;
  });
}

// half d; 8 scales of 6 bits: pairs of high bits in 2 bytes, nibbles in 4; then each 32 columns as
// in IQ4_NL
void unpack_iq4_xs(const std::byte* block, BlockQuants& out) {
  begin(out, 256, 32, false);
  fill_scales(out, load_half(block), [&](int p) {
    const int high = field(block + 2, p / 4, p % 4 * 2, 2);
    return (field(block + 4, p / 2, p % 2 * 4, 4) | high << 4) - 32;
  });
  fill_quants(out, [&](int n, int i) { return iq4_32(block + 8 + n / 2 * 16, n % 2, i); });
}

}  // namespace

void unpack_block(DType dtype, const std::byte* block, BlockQuants& out) {
  switch (dtype) {
    case DType::kQ8_0:
      return unpack_q8_0(block, out);
    case DType::kQ4_0:
      return unpack_q4_0(block, out);
    case DType::kQ4_1:
      return unpack_q4_1(block, out);
    case DType::kQ5_0:
      return unpack_q5_0(block, out);
    case DType::kQ5_1:
      return unpack_q5_1(block, out);
    case DType::kIQ4_NL:
      return unpack_iq4_nl(block, out);
    case DType::kQ2_K:
      return unpack_q2_k(block, out);
    case DType::kQ3_K:
      return unpack_q3_k(block, out);
    case DType::kQ4_K:
      return unpack_q4_k(block, out);
    case DType::kQ5_K:
      return unpack_q5_k(block, out);
    case DType::kQ6_K:
      return unpack_q6_k(block, out);
    case DType::kIQ4_XS:
      return unpack_iq4_xs(block, out);
    case DType::kQ4_Z:
      return unpack_q4_z(block, out);
    case DType::kE2M1:
      return unpack_e2m1(block, out);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI32:
    case DType::kI8:
    case DType::kU8:
      CHECK_MSG(false, "a plain type has no blocks");
  }
}

void dequantise_block(const BlockQuants& block, float* out) {
  const auto part_columns = static_cast<size_t>(block.part_columns);
  const auto parts = static_cast<size_t>(block.columns) / part_columns;
  for (size_t p = 0; p < parts; ++p, out += part_columns) {
    const int8_t* q = &block.q[p * part_columns];
    const float scale = block.scale[p];
    for (size_t c = 0; c < part_columns; ++c) out[c] = scale * static_cast<float>(q[c]);
    if (!block.has_minima) continue;
    const float minimum = block.minimum[p];
    for (size_t c = 0; c < part_columns; ++c) out[c] += minimum;
  }
}

}  // namespace headrace
