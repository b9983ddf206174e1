// Where everything lies in the product of linear_resident.h: rows in shared memory, what a lane
// names for a fragment, which element of a tile is which sum of which lane. The kernel and a test
// that multiplies by these numbers on a CPU include it.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"

namespace headrace {

inline constexpr int kResidentWarps = 16;
inline constexpr int kResidentThreads = 32 * kResidentWarps;
inline constexpr int kResidentParts = 8;          // of K: warps that share a half of a tile
inline constexpr int kResidentStep = 16;          // columns of K of one product
inline constexpr int kResidentTileMax = 32 * 64;  // sums: of 64 x 64 ptxas spills
inline constexpr int kResidentPad = 8;  // floats after a row of sums: other banks for the next

// Of K, the last filled up with zeros.
HEADRACE_HOST_DEVICE constexpr int resident_steps(int k) {
  return (k + kResidentStep - 1) / kResidentStep;
}
// From one row of x or W to the next. 16 bytes more than whole rounds of the banks: the eight rows
// of a matrix that is loaded at once lie in different ones.
HEADRACE_HOST_DEVICE constexpr int resident_row_bytes(int k) {
  return (2 * k + 127) / 128 * 128 + 16;
}

struct ResidentPlace {
  int row, byte;  // of 16 (or 8) rows, from the first byte of a step on
};
// What a lane names for the fragments of 16 rows of x, 16 rows of W, 8 rows of W.
HEADRACE_HOST_DEVICE constexpr ResidentPlace resident_x_place(int lane) {
  return {lane % 16, lane / 16 * 16};
}
HEADRACE_HOST_DEVICE constexpr ResidentPlace resident_weights_place(int lane) {
  return {lane % 8 + lane / 16 * 8, lane / 8 % 2 * 16};
}
HEADRACE_HOST_DEVICE constexpr ResidentPlace resident_few_weights_place(int lane) {
  return {lane % 8, lane / 8 % 2 * 16};
}

// Sum `i` of a lane's four of a product of 16 rows of x and 8 of W.
HEADRACE_HOST_DEVICE constexpr int resident_sum_row(int lane, int i) {
  return lane / 4 + i / 2 * 8;
}
HEADRACE_HOST_DEVICE constexpr int resident_sum_column(int lane, int i) {
  return lane % 4 * 2 + i % 2;
}

// A warp's steps of K are part, part + kResidentParts, ...
HEADRACE_HOST_DEVICE constexpr int resident_part(int warp) { return warp % kResidentParts; }
// Which half of a tile's rows of W a warp multiplies: of a gated tile, gate or up.
HEADRACE_HOST_DEVICE constexpr int resident_half(int warp) { return warp / kResidentParts; }

// Row of W of row `row` of the tile whose first is `first`; `second_half` as
// ResidentArguments::second_half.
template <int kColumns>
HEADRACE_HOST_DEVICE constexpr int resident_weight_row(int first, int row, int second_half) {
  return first + row % (kColumns / 2) + row / (kColumns / 2) * second_half;
}

// A float of the sums that the warps leave in shared memory: [part][row][kColumns + pad].
template <int kRows, int kColumns>
HEADRACE_HOST_DEVICE constexpr int resident_sum_index(int part, int row, int column) {
  return (part * kRows + row) * (kColumns + kResidentPad) + column;
}

}  // namespace headrace
