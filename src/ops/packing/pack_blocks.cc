// Tables of block types, and what packs them (pack_blocks.inc, per instruction set).
#include "ops/packing/pack_blocks.h"

#include <emmintrin.h>

#include <cstring>
#include <iterator>

#include "base/check.h"
#include "ops/packing/pack_blocks_isa.h"
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

constexpr int kRowsOfGroup = 16;

constexpr size_t format_index(DType dtype) {
  return static_cast<size_t>(dtype) - static_cast<size_t>(DType::kQ8_0);
}

constexpr bool tables_are_consistent() {
  for (size_t i = 0; i < std::size(kPackedFormats); ++i) {
    const DTypeInfo& info = kDTypeInfo[i + static_cast<size_t>(DType::kQ8_0)];
    const BlockSource& source = kBlockSources[i];
    if (kPackedFormats[i].columns != info.block_elements) return false;
    if (source.dword_count > kBlockDwordsMax) return false;
    if (source.dwords_at + source.dword_count * 4 > info.block_bytes) return false;
    if (kPackedFormats[i].second_half != (source.minimum_at != 0)) return false;
  }
  return true;
}
static_assert(tables_are_consistent());

// The rows stand in the order of DType, and every type that is_quantised() has one.
#define HR_TYPE(name, ...) DType::k##name,
constexpr DType kBlockTypes[] = {HR_BLOCK_TYPES(HR_TYPE)};
#undef HR_TYPE
static_assert(static_cast<size_t>(DType::kF8) ==
              static_cast<size_t>(DType::kQ8_0) + kPackedFormatCount);
constexpr bool rows_are_in_order() {
  for (size_t i = 0; i < std::size(kBlockTypes); ++i) {
    if (format_index(kBlockTypes[i]) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order());

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

void pack_block_rows(const CpuFeatures& cpu, DType dtype, const std::byte* const (&rows)[16],
                     int64_t k, std::byte* group) {
  const unsigned char* bytes[kRowsOfGroup];
  for (int lane = 0; lane < kRowsOfGroup; ++lane) {
    bytes[lane] = reinterpret_cast<const unsigned char*>(rows[lane]);
  }
  const PackRange range{.format = static_cast<int32_t>(format_index(dtype)),
                        .block_bytes = dtype_info(dtype).block_bytes,
                        .k = k,
                        .rows = bytes,
                        .group = reinterpret_cast<unsigned char*>(group)};
  cpu.avx512 ? pack_rows_avx512(range) : pack_rows_baseline(range);
}

namespace {

// Column c of 32, of the row whose bytes are at `lane_quants` + 64 n.
int stored_quant(const PackedFormat& format, const std::byte* lane_quants, int c) {
  const auto byte = [&](int dword) { return static_cast<int>(lane_quants[dword * 64 + c % 4]); };
  const int quad = c / 4;
  if (format.low_bits == 8) return byte(quad);
  const int low = format.low_bits == 4 ? byte(quad % 4) >> (quad / 4 * 4) & 15
                                       : byte(quad / 4) >> (quad % 4 * 2) & 3;
  if (format.quants != StoredQuants::kBinary) {
    return kStoredValues[static_cast<int>(format.quants)].of[low];
  }
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
  const float e = format.second_half ? half_at(halves + 32 + lane * 2) : 0.0f;
  const std::byte* parts = halves + format.half_bytes + lane;
  const int part_count = format.columns / format.part_columns;
  for (int p = 0; p < part_count; ++p) {
    float &scale = out.scale[static_cast<size_t>(p)],
          &minimum = out.minimum[static_cast<size_t>(p)];
    const auto byte = [&](int i) { return static_cast<int>(parts[i * kRowsOfGroup]); };
    switch (format.part_scales) {
      case PartScales::kNone:
        scale = d, minimum = e;
        break;
      case PartScales::kSigned:
        scale = d * static_cast<float>(static_cast<int8_t>(byte(p)));
        break;
      case PartScales::kSixBits: {
        const int low = byte(p), high = byte(part_count + p % 4) >> (p / 4 * 4);
        scale = d * static_cast<float>((low & 15) | (high & 3) << 4);
        minimum = -(e * static_cast<float>(low >> 4 | (high & 12) << 2));
        break;
      }
      case PartScales::kZeroPoint:
        scale = d;
        minimum = -(d * static_cast<float>(byte(p)));
        break;
      case PartScales::kNibbles:
        scale = d * static_cast<float>(byte(p) & 15);
        minimum = -(e * static_cast<float>(byte(p) >> 4));
        break;
    }
  }
}

}  // namespace headrace
