// Packing works on columns of 16 rows: a dword of each row's block is loaded into a lane, and then
// bits are rearranged within lanes, all rows at once. About 4 bytes a cycle with SSE2 alone, which
// is faster than memory.
#include "ops/pack_blocks.h"

#include <emmintrin.h>

#include <array>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace headrace {

void interleave_dwords(const std::byte* const (&rows)[16], int64_t count, std::byte* out) {
  constexpr int64_t kStride = 16 * 4;
  int64_t c = 0;
  for (; c + 4 <= count; c += 4) {  // 4 x 4 at a time
    for (int64_t lane = 0; lane < 16; lane += 4) {
      __m128 v[4];
      for (int64_t i = 0; i < 4; ++i) {
        v[i] = _mm_loadu_ps(reinterpret_cast<const float*>(rows[lane + i] + 4 * c));
      }
      _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
      for (int64_t i = 0; i < 4; ++i) {
        _mm_storeu_ps(reinterpret_cast<float*>(out + (c + i) * kStride + lane * 4), v[i]);
      }
    }
  }
  for (; c < count; ++c) {
    for (int64_t lane = 0; lane < 16; ++lane) {
      std::memcpy(out + c * kStride + lane * 4, rows[lane] + 4 * c, 4);
    }
  }
}

namespace {

constexpr int kRows = 16;

// A dword of each of the 16 rows.
struct Lanes {
  using Vector __attribute__((vector_size(64))) = uint32_t;
  Vector v;
};
static_assert(sizeof(Lanes) == 64);

void store(std::byte* at, const Lanes& lanes) { std::memcpy(at, &lanes.v, sizeof lanes.v); }

// The f16 at `offset` of each row.
void copy_halves(const std::byte* const (&rows)[kRows], int offset, std::byte* out) {
  for (int lane = 0; lane < kRows; ++lane) std::memcpy(out + lane * 2, rows[lane] + offset, 2);
}

// Byte i of each row to out[i][16].
void store_bytes(const Lanes& lanes, std::byte* out) {
  __m128i v[4];
  std::memcpy(v, &lanes.v, sizeof v);
  const __m128i mask = _mm_set1_epi32(255);
  for (int i = 0; i < 4; ++i) {
    __m128i byte[4];
    for (int n = 0; n < 4; ++n) byte[n] = _mm_and_si128(_mm_srli_epi32(v[n], 8 * i), mask);
    const __m128i words = _mm_packs_epi32(byte[0], byte[1]);
    const __m128i more = _mm_packs_epi32(byte[2], byte[3]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * kRows), _mm_packus_epi16(words, more));
  }
}

constexpr uint32_t bytes_of(uint32_t byte) { return byte * 0x01010101u; }

// rows[n], field f of kWidth bits of each byte <-> rows[f], field n.
template <int kWidth>
void transpose_fields(Lanes* rows) {
  constexpr int kCount = 8 / kWidth;
  for (int span = 1; span < kCount; span *= 2) {
    const int shift = span * kWidth;
    // The fields whose number lacks the bit `span`.
    uint32_t mask = 0;
    for (int f = 0; f < kCount; ++f) {
      if ((f & span) == 0) mask |= bytes_of(((1u << kWidth) - 1) << (f * kWidth));
    }
    for (int n = 0; n < kCount; ++n) {
      if ((n & span) != 0) continue;
      Lanes::Vector &a = rows[n].v, &b = rows[n + span].v;
      const Lanes::Vector swap = ((a >> shift) ^ b) & mask;
      b ^= swap;
      a ^= swap << shift;
    }
  }
}

// Bit 4 j + i -> bit 8 i + j, as a product of four exchanges of two bits of the position.
void spread_bits(Lanes& lanes) {
  constexpr int kExchanges[4][2] = {{2, 4}, {1, 3}, {0, 4}, {3, 4}};
  for (const auto& [low, high] : kExchanges) {
    uint32_t mask = 0;  // positions that move up: bit `low` set, bit `high` not
    for (int p = 0; p < 32; ++p) mask |= (p >> low & 1) & ~(p >> high) ? 1u << p : 0u;
    const int shift = (1 << high) - (1 << low);
    const Lanes::Vector swap = ((lanes.v >> shift) ^ lanes.v) & mask;
    lanes.v ^= swap ^ (swap << shift);
  }
}

// ---- parts of blocks of 256. `quants` is the block's packed memory; 32 columns take `stride`.

// 8 dwords of nibbles: low halves are 32 columns, high halves are 32 others.
void split_nibbles(const Lanes* in, std::byte* low, std::byte* high) {
  constexpr uint32_t kLow = bytes_of(0x0f), kHigh = bytes_of(0xf0);
  for (int j = 0; j < 4; ++j, low += 64, high += 64) {
    store(low, {(in[j].v & kLow) | ((in[j + 4].v & kLow) << 4)});
    store(high, {((in[j].v >> 4) & kLow) | (in[j + 4].v & kHigh)});
  }
}

// 8 dwords of pairs of bits of 128 columns: 32 columns at each pair.
void split_pairs(Lanes* in, std::byte* quants, int stride) {
  for (int t = 0; t < 2; ++t) {
    transpose_fields<2>(in + 4 * t);
    for (int n = 0; n < 4; ++n) store(quants + n * stride + t * 64, in[4 * t + n]);
  }
}

// 8 dwords of single bits of 256 columns: 32 columns at each bit.
void split_bits(Lanes* in, std::byte* quants, int stride) {
  transpose_fields<1>(in);
  for (int n = 0; n < 8; ++n) store(quants + n * stride, in[n]);
}

// Unsigned numbers of 6 bits in bytes, minus 32.
void subtract_32(Lanes& lanes) {
  const Lanes::Vector negative = ~lanes.v & bytes_of(0x20);
  lanes.v = (lanes.v & bytes_of(0x1f)) | negative | (negative << 1) | (negative << 2);
}

// ---- one function per type: `in` holds the dwords of 16 blocks that the table below asks for
struct PackedBlock {
  std::byte* quants;  // of its first 32 columns
  std::byte* scales;  // part scales
};
constexpr int kNibbleBytes = 4 * 64;  // the low plane of 32 columns at 4 bits

template <int kDwords>
void pack_as_is(Lanes* in, const PackedBlock& out) {
  for (int j = 0; j < kDwords; ++j) store(out.quants + j * 64, in[j]);
}

void pack_q8_0(Lanes* in, const PackedBlock& out) {
  for (int j = 0; j < 8; ++j) store(out.quants + j * 64, {in[j].v ^ bytes_of(0x80)});
}

void pack_five_bits(Lanes* in, const PackedBlock& out) {
  for (int j = 0; j < 4; ++j) store(out.quants + j * 64, in[j + 1]);
  spread_bits(in[0]);
  store(out.quants + kNibbleBytes, in[0]);
}

void pack_q2_k(Lanes* in, const PackedBlock& out) {
  constexpr int kStride = kPackedQ2K.quant_bytes;
  for (int n = 0; n < 4; ++n) store_bytes(in[n], out.scales + n * 64);
  for (int half = 0; half < 2; ++half) {
    split_pairs(in + 4 + half * 8, out.quants + half * 4 * kStride, kStride);
  }
}

void pack_q3_k(Lanes* in, const PackedBlock& out) {
  constexpr int kStride = kPackedQ3K.quant_bytes;
  split_bits(in, out.quants + 2 * 64, kStride);
  for (int half = 0; half < 2; ++half) {
    split_pairs(in + 8 + half * 8, out.quants + half * 4 * kStride, kStride);
  }
  const Lanes* scales = in + 24;
  for (int n = 0; n < 4; ++n) {
    const Lanes::Vector low = (scales[n % 2].v >> (n / 2 * 4)) & bytes_of(0x0f);
    Lanes scale{low | (((scales[2].v >> (n * 2)) & bytes_of(0x03)) << 4)};
    subtract_32(scale);
    store_bytes(scale, out.scales + n * 64);
  }
}

// 12 bytes of 8 scales and 8 minima.
void pack_6_bit_scales(const Lanes* in, std::byte* scales) {
  constexpr uint32_t kSix = bytes_of(0x3f), kFour = bytes_of(0x0f), kHigh = bytes_of(0x30);
  store_bytes({in[0].v & kSix}, scales);
  store_bytes({(in[2].v & kFour) | ((in[0].v >> 2) & kHigh)}, scales + 64);
  store_bytes({in[1].v & kSix}, scales + 128);
  store_bytes({((in[2].v >> 4) & kFour) | ((in[1].v >> 2) & kHigh)}, scales + 192);
}

void pack_q4_k(Lanes* in, const PackedBlock& out) {
  constexpr int kStride = kPackedQ4K.quant_bytes;
  pack_6_bit_scales(in, out.scales);
  for (int n = 0; n < 4; ++n) {
    std::byte* quants = out.quants + n * 2 * kStride;
    split_nibbles(in + 3 + n * 8, quants, quants + kStride);
  }
}

void pack_q5_k(Lanes* in, const PackedBlock& out) {
  constexpr int kStride = kPackedQ5K.quant_bytes;
  pack_6_bit_scales(in, out.scales);
  split_bits(in + 3, out.quants + kNibbleBytes, kStride);
  for (int n = 0; n < 4; ++n) {
    std::byte* quants = out.quants + n * 2 * kStride;
    split_nibbles(in + 11 + n * 8, quants, quants + kStride);
  }
}

void pack_q6_k(Lanes* in, const PackedBlock& out) {
  constexpr int kStride = kPackedQ6K.quant_bytes;
  for (int half = 0; half < 2; ++half) {
    std::byte* quants = out.quants + half * 4 * kStride;
    for (int n = 0; n < 2; ++n) {
      split_nibbles(in + half * 16 + n * 8, quants + n * kStride, quants + (n + 2) * kStride);
    }
    split_pairs(in + 32 + half * 8, quants + kNibbleBytes, kStride);
  }
  for (int n = 0; n < 4; ++n) store_bytes(in[48 + n], out.scales + n * 64);
}

void pack_iq4_xs(Lanes* in, const PackedBlock& out) {
  // in[0]: f16 d, then 8 pairs of high bits; in[1]: 8 nibbles.
  for (int n = 0; n < 2; ++n) {
    Lanes::Vector high = (in[0].v >> (16 + n * 8)) & 0xffu;
    high = (high | (high << 12)) & 0x000f000fu;
    high = (high | (high << 6)) & bytes_of(0x03);
    Lanes::Vector low = (in[1].v >> (n * 16)) & 0xffffu;
    low = (low | (low << 8)) & 0x00ff00ffu;
    low = (low | (low << 4)) & bytes_of(0x0f);
    Lanes scale{low | (high << 4)};
    subtract_32(scale);
    store_bytes(scale, out.scales + n * 64);
  }
  for (int j = 0; j < 32; ++j) store(out.quants + j * 64, in[2 + j]);
}

// Where a type's block has what its function packs.
struct BlockSource {
  int scale_at;    // f16 d
  int minimum_at;  // f16 m or e
  int dwords_at;   // the dwords
  int dword_count;
  void (*pack)(Lanes* in, const PackedBlock& out);
};

// By DType, from kQ8_0 on.
constexpr std::array<BlockSource, kPackedFormatCount> kSources = {{
    {0, 0, 2, 8, pack_q8_0},
    {0, 0, 2, 4, pack_as_is<4>},
    {0, 2, 4, 4, pack_as_is<4>},
    {0, 0, 2, 5, pack_five_bits},
    {0, 2, 4, 5, pack_five_bits},
    {0, 0, 2, 4, pack_as_is<4>},
    {80, 82, 0, 20, pack_q2_k},
    {108, 0, 0, 27, pack_q3_k},
    {0, 2, 4, 35, pack_q4_k},
    {0, 2, 4, 43, pack_q5_k},
    {208, 0, 0, 52, pack_q6_k},
    {0, 0, 0, 34, pack_iq4_xs},
}};
constexpr int kDwordsMax = 52;

constexpr size_t format_index(DType dtype) {
  return static_cast<size_t>(dtype) - static_cast<size_t>(DType::kQ8_0);
}

constexpr bool tables_are_consistent() {
  for (size_t i = 0; i < kSources.size(); ++i) {
    const DTypeInfo& info = kDTypeInfo[i + static_cast<size_t>(DType::kQ8_0)];
    const BlockSource& source = kSources[i];
    if (kPackedFormats[i].columns != info.block_elements) return false;
    if (source.dword_count > kDwordsMax) return false;
    if (source.dwords_at + source.dword_count * 4 > info.block_bytes) return false;
    if (kPackedFormats[i].minimum != (source.minimum_at != 0)) return false;
  }
  return true;
}
static_assert(tables_are_consistent());
static_assert(format_index(DType::kIQ4_XS) + 1 == kPackedFormatCount);
static_assert(std::size(kPackedFormats) == kPackedFormatCount);

int64_t scale_block_bytes(const PackedFormat& format) {
  return format.half_bytes + format.part_scale_bytes;
}
// Where the scales of a group start.
int64_t scales_offset(const PackedFormat& format, int64_t k) { return k / 32 * format.quant_bytes; }

}  // namespace

const PackedFormat& packed_format_of(DType dtype) {
  CHECK(is_quantised(dtype));
  return kPackedFormats[format_index(dtype)];
}

int64_t packed_group_bytes(const PackedFormat& format, int64_t k) {
  const int64_t bytes = scales_offset(format, k) + k / format.columns * scale_block_bytes(format);
  return (bytes + 63) / 64 * 64;
}

void pack_block_rows(DType dtype, const std::byte* const (&rows)[16], int64_t k, std::byte* group) {
  const PackedFormat& format = packed_format_of(dtype);
  const BlockSource& source = kSources[format_index(dtype)];
  const std::byte* blocks[kRows];
  for (int lane = 0; lane < kRows; ++lane) blocks[lane] = rows[lane] + source.dwords_at;
  std::byte* quants = group;
  std::byte* scales = group + scales_offset(format, k);
  const int64_t next_group = kRows * *row_bytes(dtype, k);  // rows are mostly one after the other
  const int64_t block_bytes = dtype_info(dtype).block_bytes;
  Lanes in[kDwordsMax];
  for (int64_t b = 0; b < k / format.columns; ++b) {
    copy_halves(blocks, source.scale_at - source.dwords_at, scales);
    if (format.minimum) copy_halves(blocks, source.minimum_at - source.dwords_at, scales + 32);
    interleave_dwords(blocks, source.dword_count, reinterpret_cast<std::byte*>(in));
    source.pack(in, {quants, scales + format.half_bytes});
    quants += format.columns / 32 * format.quant_bytes;
    scales += scale_block_bytes(format);
    for (const std::byte*& block : blocks) {
      for (int64_t line = 0; line < block_bytes; line += 64) {
        __builtin_prefetch(block + next_group + line);
      }
      block += block_bytes;
    }
  }
}

namespace {

// Column c of 32, of the row whose bytes are at `lane_quants` + 64 n.
int stored_quant(const PackedFormat& format, const std::byte* lane_quants, int c) {
  const auto byte = [&](int dword) { return static_cast<int>(lane_quants[dword * 64 + c % 4]); };
  const int quad = c / 4;
  if (format.low_bits == 8) return byte(quad);
  const int low = format.low_bits == 4 ? byte(quad % 4) >> (quad / 4 * 4) & 15
                                       : byte(quad / 4) >> (quad % 4 * 2) & 3;
  if (format.quants == StoredQuants::kIq4Index) return kIq4Values[static_cast<size_t>(low)] + 128;
  if (format.high_bits == 0) return low;
  const int plane = format.low_bits;  // dwords of the low plane
  const int high = format.high_bits == 1 ? byte(plane) >> quad & 1
                                         : byte(plane + quad / 4) >> (quad % 4 * 2) & 3;
  return low | high << format.low_bits;
}

float half_at(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return half_to_float(bits);
}

}  // namespace

void read_packed_block(const PackedFormat& format, const std::byte* group, int64_t k, int64_t lane,
                       int64_t b, BlockQuants& out) {
  out.columns = format.columns;
  out.part_columns = format.part_columns;
  out.has_minima = format.minimum;
  const std::byte* quants = group + b * (format.columns / 32) * format.quant_bytes + lane * 4;
  for (int c = 0; c < format.columns; ++c) {
    const int stored = stored_quant(format, quants + c / 32 * format.quant_bytes, c % 32);
    out.q[static_cast<size_t>(c)] = static_cast<int8_t>(stored - format.zero);
  }
  const std::byte* halves = group + scales_offset(format, k) + b * scale_block_bytes(format);
  const float d = half_at(halves + lane * 2);
  const float e = format.minimum ? half_at(halves + 32 + lane * 2) : 0.0f;
  const std::byte* parts = halves + format.half_bytes + lane;
  const int part_count = format.columns / format.part_columns;
  for (int p = 0; p < part_count; ++p) {
    float &scale = out.scale[static_cast<size_t>(p)],
          &minimum = out.minimum[static_cast<size_t>(p)];
    const auto byte = [&](int i) { return static_cast<int>(parts[i * kRows]); };
    switch (format.part_scales) {
      case PartScales::kNone:
        scale = d, minimum = e;
        break;
      case PartScales::kSigned:
        scale = d * static_cast<float>(static_cast<int8_t>(byte(p)));
        break;
      case PartScales::kUnsigned:
        scale = d * static_cast<float>(byte(p));
        minimum = -(e * static_cast<float>(byte(part_count + p)));
        break;
      case PartScales::kNibbles:
        scale = d * static_cast<float>(byte(p) & 15);
        minimum = -(e * static_cast<float>(byte(p) >> 4));
        break;
    }
  }
}

}  // namespace headrace
