// Where everything lies in the product of gemv.h: what a lane reads of W and of x, which
// element of y is which sum of which lane. The kernel and a test that multiplies by these numbers
// on a CPU include it.
//
// A warp takes 8 rows of W, 128 bytes at a time (64 columns of 16 bits, 128 of 8): two loads of 16
// bytes a lane, each four rows of 128 bytes. As the 16-row side of m16n8k16 a load of four rows is
// eight rows of half as many columns, the halves of a row one under the other; the 8-column side
// has the halves of four rows of x in the same way, so that a lane's columns of W and of x are the
// same and x comes as it lies. Of what is multiplied, halves of one kind are wanted: the sums of
// the two kinds are added up at the end.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"

namespace headrace {

inline constexpr int kGemvWarps = 16;  // of a block: they share the columns of K
inline constexpr int kGemvThreads = 32 * kGemvWarps;
inline constexpr int kGemvRowsMax = 8;      // of x
inline constexpr int kGemvLineBytes = 128;  // of a row of W, of one step of a warp
inline constexpr int kGemvHalfRows = 4;     // rows of W of one load: a tile has two such halves
inline constexpr int kGemvTileRows = 2 * kGemvHalfRows;
inline constexpr int kGemvXRows = 4;   // rows of x of one product
inline constexpr int kGemvXBytes = 2;  // of an element of x

// Columns of K of one step of a warp, and the bytes of a row of x beside them.
HEADRACE_HOST_DEVICE constexpr int gemv_columns(int weight_bytes) {
  return kGemvLineBytes / weight_bytes;
}
HEADRACE_HOST_DEVICE constexpr int gemv_x_line(int weight_bytes) {
  return gemv_columns(weight_bytes) * kGemvXBytes;
}
inline constexpr int kGemvLoadBytes = 32 * 16;  // of a warp; two are a step

// Many rows of x that are long are multiplied in windows of so many steps of every warp, 256 bytes
// a row and warp, of which shared memory holds two. Rows that are normalised are there whole.
HEADRACE_HOST_DEVICE constexpr int gemv_window_steps(int weight_bytes) {
  return 256 / gemv_x_line(weight_bytes);
}
HEADRACE_HOST_DEVICE constexpr bool gemv_may_be_windowed(int m, bool normed) {
  return m > kGemvXRows && !normed;
}

// What a lane reads: a row of four, of W and of x, and from which byte of its 128 of W.
HEADRACE_HOST_DEVICE constexpr int gemv_row(int lane) { return lane / 8; }
HEADRACE_HOST_DEVICE constexpr int gemv_byte(int lane) { return lane % 8 * 16; }
// The bytes of x beside them: 16, or beside columns of 8 bits 32 as two accesses, of which half of
// the lanes take the second one first, so that eight lanes read from all banks.
HEADRACE_HOST_DEVICE constexpr int gemv_x_byte(int lane, int weight_bytes, int access) {
  if (weight_bytes == kGemvXBytes) return gemv_byte(lane);
  return lane % 8 * 32 + (access ^ (lane / 4 % 2)) * 16;
}

// From the ring's first byte, where a lane finds a step of its warp: its 16 bytes of the tile's
// first half, and kGemvLoadBytes further on those of the second.
HEADRACE_HOST_DEVICE constexpr int gemv_ring_offset(int slot, int warp, int lane) {
  return (slot * kGemvWarps + warp) * 2 * kGemvLoadBytes + lane * 16;
}

// Of a lane's sums c0, c1 (first four rows of W) and c2, c3 (last four) one each is wanted: which,
// and that it is of W's row gemv_row(lane) and of this row of x. The lane `lane ^ 4` has the other
// half of the columns.
HEADRACE_HOST_DEVICE constexpr int gemv_sum(int lane) { return lane / 4 % 2; }
HEADRACE_HOST_DEVICE constexpr int gemv_sum_x_row(int lane) { return lane % 4; }

// A float of the sums that the warps leave in shared memory: [warp][row of W][row of `m`].
HEADRACE_HOST_DEVICE constexpr int gemv_sum_index(int warp, int row, int rows, int x_row, int m) {
  return (warp * rows + row) * m + x_row;
}

}  // namespace headrace
