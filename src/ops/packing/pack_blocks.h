// Rows of a block type into a packed group of 16 and back (packed_weight.h has the layout).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/packing/packed_format.h"
#include "tensor/block_quants.h"
#include "tensor/cpu_features.h"

namespace headrace {

// REQUIRES: is_quantised(dtype)
const PackedFormat& packed_format_of(DType dtype);

// Bytes of a group, a multiple of 64. REQUIRES: k is a multiple of the format's columns
int64_t packed_group_bytes(const PackedFormat& format, int64_t k);

// Writes a group of `k` columns. `rows`: 16 rows of whole blocks in the file's form. The bytes are
// the same on every CPU.
void pack_block_rows(const CpuFeatures& cpu, DType dtype, const std::byte* const (&rows)[16],
                     int64_t k, std::byte* group);

// out[i][16] = dword i of each row. Rows need no alignment.
void interleave_dwords(const std::byte* const (&rows)[16], int64_t count, std::byte* out);

// The b-th block of one row of a group of `k` columns, as unpack_block() of the file's would give
// it.
void read_packed_block(const PackedFormat& format, const std::byte* group, int64_t k, int64_t lane,
                       int64_t b, BlockQuants& out);

}  // namespace headrace
