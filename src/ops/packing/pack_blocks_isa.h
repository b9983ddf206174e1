// Between pack_blocks.cc and its instruction-set files: plain data only, no inline code that the
// linker could pick for a machine without those instructions.
#pragma once

#include <stdint.h>

#include "ops/packing/packed_format.h"

namespace headrace {

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
