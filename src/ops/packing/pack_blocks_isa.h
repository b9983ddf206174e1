// Between pack_blocks.cc and its instruction-set files: plain data only, no inline code that the
// linker could pick for a machine without those instructions.
#pragma once

#include <stdint.h>

#include "ops/packing/packed_format.h"

namespace headrace {

// Where a type's block in the file has what is packed.
struct BlockSource {
  int scale_at;    // f16 d
  int minimum_at;  // f16 m or e; 0: the type has none
  int dwords_at;   // the dwords that its function in pack_blocks.inc rearranges
  int dword_count;
};
// By DType, from kQ8_0 on.
inline constexpr BlockSource kBlockSources[] = {
    {0, 0, 2, 8},    {0, 0, 2, 4},    {0, 2, 4, 4},  {0, 0, 2, 5},  {0, 2, 4, 5},    {0, 0, 2, 4},
    {80, 82, 0, 20}, {108, 0, 0, 27}, {0, 2, 4, 35}, {0, 2, 4, 43}, {208, 0, 0, 52}, {0, 0, 0, 34},
};
inline constexpr int kBlockDwordsMax = 52;

// 16 rows of blocks into one packed group (packed_weight.h).
struct PackRange {
  int32_t format;                    // index into kPackedFormats
  int64_t block_bytes;               // in the file
  int64_t k;                         // columns
  const unsigned char* const* rows;  // [16]
  unsigned char* group;
};

void pack_rows_baseline(const PackRange& range);
void pack_rows_avx512(const PackRange& range);

}  // namespace headrace
