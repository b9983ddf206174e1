// How each block type lies in a packed weight (packed_weight.h has the layout in words): constants
// shared by what packs and by the tiles of every instruction set. There is no code here that could
// end up in an object file, so that instruction-set files may include it.
#pragma once

#include <stdint.h>

namespace headrace {

enum class PartScales : unsigned char {
  kNone,     // the block is one part: its f16 d (and minimum m) are the part's
  kSigned,   // int8 s, scale d s
  kSixBits,  // 6 bits s and m of 8 parts, scale d s, minimum -(e m): 8 bytes of the low nibbles of
             // both, then 4 of their high bits; byte i: parts i and i + 4, two of s, two of m each
  kNibbles,  // the same as the low and the high half of one byte
  kZeroPoint,  // the block is one part: a byte z, minimum -(d z)
};

// What a stored quant is, before the zero point is taken off.
enum class StoredQuants : unsigned char {
  kBinary,     // an unsigned integer
  kIq4Index,   // the index of an IQ4 value + 128
  kE2m1Index,  // the index of an E2M1 value + 16
};

// The quants that indices stand for, by StoredQuants: kIq4Values and kE2m1Values
// (tensor/block_quants.h) and their zero points.
struct StoredValues {
  unsigned char of[16];
};
inline constexpr StoredValues kStoredValues[] = {
    {},
    {{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}},
    {{16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4}}};

struct PackedFormat {
  int32_t columns;        // of a block: 32 or 256
  int32_t part_columns;   // that share a scale: 16 or 32
  int32_t low_bits;       // of a quant: 8, 4 or 2
  int32_t high_bits = 0;  // the bits above them: 0, 1 or 2
  int32_t zero = 0;       // stored quant - zero is what the scale multiplies
  bool minimum = false;
  PartScales part_scales = PartScales::kNone;
  StoredQuants quants = StoredQuants::kBinary;
  // Of a group of 16 rows; derived.
  int32_t quant_bytes = 0;       // of 32 columns
  bool second_half = false;      // whether a block has an f16 number beside d: m or e
  int32_t half_bytes = 0;        // f16 numbers of a block
  int32_t part_scale_bytes = 0;  // integer scales (and minima) of a block
};

consteval PackedFormat packed_format(PackedFormat format) {
  const int32_t parts = format.columns / format.part_columns;
  format.quant_bytes = (format.low_bits + format.high_bits) * 64;
  format.second_half = format.minimum && format.part_scales != PartScales::kZeroPoint;
  format.half_bytes = format.second_half ? 64 : 32;
  if (format.part_scales != PartScales::kNone) {
    format.part_scale_bytes = format.part_scales == PartScales::kSixBits ? 12 * 16 : parts * 16;
  }
  return format;
}

// Where a type's block in the file has what is packed.
struct BlockSource {
  int32_t scale_at;    // f16 d
  int32_t minimum_at;  // f16 m or e; 0: the type has no such number
  int32_t dwords_at;   // the dwords that its function in pack_blocks.inc rearranges
  int32_t dword_count;
};
inline constexpr int32_t kBlockDwordsMax = 52;

// The block types, in the order of DType: name; scale_at, minimum_at, dwords_at, dword_count; its
// function in pack_blocks.inc; its format. Every table of block types is made of these rows.
#define HR_BLOCK_TYPES(ROW)                                                                  \
  ROW(Q8_0, 0, 0, 2, 8, pack_q8_0,                                                           \
      ({.columns = 32, .part_columns = 32, .low_bits = 8, .zero = 128}))                     \
  ROW(Q4_0, 0, 0, 2, 4, pack_as_is<4>,                                                       \
      ({.columns = 32, .part_columns = 32, .low_bits = 4, .zero = 8}))                       \
  ROW(Q4_1, 0, 2, 4, 4, pack_as_is<4>,                                                       \
      ({.columns = 32, .part_columns = 32, .low_bits = 4, .minimum = true}))                 \
  ROW(Q5_0, 0, 0, 2, 5, pack_five_bits,                                                      \
      ({.columns = 32, .part_columns = 32, .low_bits = 4, .high_bits = 1, .zero = 16}))      \
  ROW(Q5_1, 0, 2, 4, 5, pack_five_bits,                                                      \
      ({.columns = 32, .part_columns = 32, .low_bits = 4, .high_bits = 1, .minimum = true})) \
  ROW(IQ4_NL, 0, 0, 2, 4, pack_as_is<4>,                                                     \
      ({.columns = 32,                                                                       \
        .part_columns = 32,                                                                  \
        .low_bits = 4,                                                                       \
        .zero = 128,                                                                         \
        .quants = StoredQuants::kIq4Index}))                                                 \
  ROW(Q2_K, 80, 82, 0, 20, pack_q2_k,                                                        \
      ({.columns = 256,                                                                      \
        .part_columns = 16,                                                                  \
        .low_bits = 2,                                                                       \
        .minimum = true,                                                                     \
        .part_scales = PartScales::kNibbles}))                                               \
  ROW(Q3_K, 108, 0, 0, 27, pack_q3_k,                                                        \
      ({.columns = 256,                                                                      \
        .part_columns = 16,                                                                  \
        .low_bits = 2,                                                                       \
        .high_bits = 1,                                                                      \
        .zero = 4,                                                                           \
        .part_scales = PartScales::kSigned}))                                                \
  ROW(Q4_K, 0, 2, 4, 35, pack_q4_k,                                                          \
      ({.columns = 256,                                                                      \
        .part_columns = 32,                                                                  \
        .low_bits = 4,                                                                       \
        .minimum = true,                                                                     \
        .part_scales = PartScales::kSixBits}))                                               \
  ROW(Q5_K, 0, 2, 4, 43, pack_q5_k,                                                          \
      ({.columns = 256,                                                                      \
        .part_columns = 32,                                                                  \
        .low_bits = 4,                                                                       \
        .high_bits = 1,                                                                      \
        .minimum = true,                                                                     \
        .part_scales = PartScales::kSixBits}))                                               \
  ROW(Q6_K, 208, 0, 0, 52, pack_q6_k,                                                        \
      ({.columns = 256,                                                                      \
        .part_columns = 16,                                                                  \
        .low_bits = 4,                                                                       \
        .high_bits = 2,                                                                      \
        .zero = 32,                                                                          \
        .part_scales = PartScales::kSigned}))                                                \
  ROW(IQ4_XS, 0, 0, 0, 34, pack_iq4_xs,                                                      \
      ({.columns = 256,                                                                      \
        .part_columns = 32,                                                                  \
        .low_bits = 4,                                                                       \
        .zero = 128,                                                                         \
        .part_scales = PartScales::kSigned,                                                  \
        .quants = StoredQuants::kIq4Index}))                                                 \
  ROW(Q4_Z, 0, 0, 0, 5, pack_q4_z,                                                           \
      ({.columns = 32,                                                                       \
        .part_columns = 32,                                                                  \
        .low_bits = 4,                                                                       \
        .minimum = true,                                                                     \
        .part_scales = PartScales::kZeroPoint}))                                             \
  ROW(E2M1, 0, 0, 2, 4, pack_as_is<4>,                                                       \
      ({.columns = 32,                                                                       \
        .part_columns = 32,                                                                  \
        .low_bits = 4,                                                                       \
        .zero = 16,                                                                          \
        .quants = StoredQuants::kE2m1Index}))

// kPackedQ8_0 and so on.
#define HR_FORMAT(name, d, m, at, count, pack, format) \
  inline constexpr PackedFormat kPacked##name = packed_format format;
HR_BLOCK_TYPES(HR_FORMAT)
#undef HR_FORMAT

// By DType, from the first block type on.
#define HR_FORMAT(name, ...) kPacked##name,
inline constexpr PackedFormat kPackedFormats[] = {HR_BLOCK_TYPES(HR_FORMAT)};
#undef HR_FORMAT
#define HR_SOURCE(name, d, m, at, count, ...) {d, m, at, count},
inline constexpr BlockSource kBlockSources[] = {HR_BLOCK_TYPES(HR_SOURCE)};
#undef HR_SOURCE
inline constexpr int32_t kPackedFormatCount = sizeof(kPackedFormats) / sizeof(PackedFormat);

}  // namespace headrace
