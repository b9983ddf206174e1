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
};

// What a stored quant is, before the zero point is taken off.
enum class StoredQuants : unsigned char {
  kBinary,    // an unsigned integer
  kIq4Index,  // the index of an IQ4 value + 128
};

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
  int32_t half_bytes = 0;        // f16 numbers of a block
  int32_t part_scale_bytes = 0;  // integer scales (and minima) of a block
};

consteval PackedFormat packed_format(PackedFormat format) {
  const int32_t parts = format.columns / format.part_columns;
  format.quant_bytes = (format.low_bits + format.high_bits) * 64;
  format.half_bytes = format.minimum ? 64 : 32;
  if (format.part_scales != PartScales::kNone) {
    format.part_scale_bytes = format.part_scales == PartScales::kSixBits ? 12 * 16 : parts * 16;
  }
  return format;
}

inline constexpr PackedFormat kPackedQ8_0 =
    packed_format({.columns = 32, .part_columns = 32, .low_bits = 8, .zero = 128});
inline constexpr PackedFormat kPackedQ4_0 =
    packed_format({.columns = 32, .part_columns = 32, .low_bits = 4, .zero = 8});
inline constexpr PackedFormat kPackedQ4_1 =
    packed_format({.columns = 32, .part_columns = 32, .low_bits = 4, .minimum = true});
inline constexpr PackedFormat kPackedQ5_0 =
    packed_format({.columns = 32, .part_columns = 32, .low_bits = 4, .high_bits = 1, .zero = 16});
inline constexpr PackedFormat kPackedQ5_1 = packed_format(
    {.columns = 32, .part_columns = 32, .low_bits = 4, .high_bits = 1, .minimum = true});
inline constexpr PackedFormat kPackedIq4Nl = packed_format({.columns = 32,
                                                            .part_columns = 32,
                                                            .low_bits = 4,
                                                            .zero = 128,
                                                            .quants = StoredQuants::kIq4Index});
inline constexpr PackedFormat kPackedQ2K = packed_format({.columns = 256,
                                                          .part_columns = 16,
                                                          .low_bits = 2,
                                                          .minimum = true,
                                                          .part_scales = PartScales::kNibbles});
inline constexpr PackedFormat kPackedQ3K = packed_format({.columns = 256,
                                                          .part_columns = 16,
                                                          .low_bits = 2,
                                                          .high_bits = 1,
                                                          .zero = 4,
                                                          .part_scales = PartScales::kSigned});
inline constexpr PackedFormat kPackedQ4K = packed_format({.columns = 256,
                                                          .part_columns = 32,
                                                          .low_bits = 4,
                                                          .minimum = true,
                                                          .part_scales = PartScales::kSixBits});
inline constexpr PackedFormat kPackedQ5K = packed_format({.columns = 256,
                                                          .part_columns = 32,
                                                          .low_bits = 4,
                                                          .high_bits = 1,
                                                          .minimum = true,
                                                          .part_scales = PartScales::kSixBits});
inline constexpr PackedFormat kPackedQ6K = packed_format({.columns = 256,
                                                          .part_columns = 16,
                                                          .low_bits = 4,
                                                          .high_bits = 2,
                                                          .zero = 32,
                                                          .part_scales = PartScales::kSigned});
inline constexpr PackedFormat kPackedIq4Xs = packed_format({.columns = 256,
                                                            .part_columns = 32,
                                                            .low_bits = 4,
                                                            .zero = 128,
                                                            .part_scales = PartScales::kSigned,
                                                            .quants = StoredQuants::kIq4Index});

// By DType, from kQ8_0 on.
inline constexpr PackedFormat kPackedFormats[] = {
    kPackedQ8_0, kPackedQ4_0, kPackedQ4_1, kPackedQ5_0, kPackedQ5_1, kPackedIq4Nl,
    kPackedQ2K,  kPackedQ3K,  kPackedQ4K,  kPackedQ5K,  kPackedQ6K,  kPackedIq4Xs};
inline constexpr int32_t kPackedFormatCount = 12;

}  // namespace headrace
