// A page of keys or values (one head of one block: 16 tokens) in shared memory, as one box of a
// tensor map puts it there and the tensor cores read it.
//
//   [2: token / 8][d / chunk][8: token % 8][chunk]
// A chunk is 64, 32 or 16 components: the widest that divides d. 8 tokens x one chunk are one
// swizzle pattern of 128, 64 or 32 bytes a row (16-byte units XORed with the row), so that pages
// one after the other are an operand of wgmma: groups of 8 tokens kGroupBytes apart, chunks
// kChunkBytes apart.
#pragma once

#include "gpu/host_device.h"

namespace headrace::gpu {

inline constexpr int kPageTokens = 16;

template <int kDim>
struct Page {
  static_assert(kDim % 16 == 0 && kDim <= 1024);
  static constexpr int kChunk = kDim % 64 == 0 ? 64 : kDim % 32 == 0 ? 32 : 16;
  static constexpr int kChunks = kDim / kChunk;
  static constexpr int kRowBytes = kChunk * 2;
  static constexpr int kChunkBytes = 8 * kRowBytes;
  static constexpr int kGroupBytes = kChunks * kChunkBytes;
  static constexpr int kBytes = 2 * kGroupBytes;
  // Bits of an offset that the swizzle changes; it XORs the bits 3 above into them.
  static constexpr int kSwizzleMask = kRowBytes - 16;

  // Byte offset of component d (a multiple of 8) of a token. d = first + rest: `first` a constant
  // multiple of 16, `rest` 0 or 8 and the token are the lane's: lane_part() once, then at().
  struct LanePart {
    int rows, inner;
  };
  HEADRACE_HOST_DEVICE static LanePart lane_part(int token, int rest) {
    const int row = token % 8;
    const int within = row * kRowBytes;
    return {token / 8 * kGroupBytes + within, (rest * 2) ^ ((within >> 3) & kSwizzleMask)};
  }
  HEADRACE_HOST_DEVICE static int at(LanePart lane, int first) {
    return lane.rows + first / kChunk * kChunkBytes + ((first % kChunk * 2) ^ lane.inner);
  }
};

}  // namespace headrace::gpu
