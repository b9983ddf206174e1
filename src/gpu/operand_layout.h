// How the tensor cores are told where an operand lies in shared memory (wgmma.cuh).
#pragma once

#include <cstdint>

#include "gpu/host_device.h"

namespace headrace::gpu {

// Where an operand lies in shared memory, in patterns of 8 rows x `row_bytes` (128, 64 or 32),
// swizzled as the copy engine swizzles them. A [rows, k] operand with k along the rows' bytes:
// `group_bytes` from 8 rows to the next 8. One with k down the rows (`transposed`): `group_bytes`
// from 8 k to the next 8, `chunk_bytes` from row_bytes of n to the next.
struct OperandLayout {
  uint64_t bits;

  HEADRACE_HOST_DEVICE static constexpr OperandLayout of(int row_bytes, int group_bytes,
                                                         int chunk_bytes) {
    const uint64_t swizzle = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
    return {(swizzle << 62) | (static_cast<uint64_t>(group_bytes / 16) << 32) |
            (static_cast<uint64_t>(chunk_bytes / 16) << 16)};
  }
  // The operand that starts at this address of shared memory.
  HEADRACE_HOST_DEVICE constexpr uint64_t at(uint32_t address) const {
    return bits | ((address & 0x3ffff) >> 4);
  }
};

}  // namespace headrace::gpu
