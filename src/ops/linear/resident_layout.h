// Where everything lies in the product of resident.h: rows in shared memory, what a lane
// names for a fragment, which element of a tile is which sum of which lane. The kernel and a test
// that multiplies by these numbers on a CPU include it.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"

namespace headrace {

inline constexpr int kResidentWarps = 8;  // each a part of K
inline constexpr int kResidentThreads = 32 * kResidentWarps;
inline constexpr int kResidentStep = 16;          // columns of K of one product
inline constexpr int kResidentTileMax = 32 * 64;  // sums: more registers leave no room for the next
inline constexpr int kResidentPad = 8;            // floats after a row of sums: other banks

// From one row of x or W to the next. 16 bytes more than whole rounds of the banks: the eight rows
// of a matrix that is loaded at once lie in different ones.
HEADRACE_HOST_DEVICE constexpr int resident_row_bytes(int k) {
  return (2 * k + 127) / 128 * 128 + 16;
}

struct ResidentPlace {
  int row, byte;  // of 16 rows, from the first byte of a step on
};
// What a lane names for the fragments of 16 rows of x, 16 rows of W.
HEADRACE_HOST_DEVICE constexpr ResidentPlace resident_x_place(int lane) {
  return {lane % 16, lane / 16 * 16};
}
HEADRACE_HOST_DEVICE constexpr ResidentPlace resident_weights_place(int lane) {
  return {lane % 8 + lane / 16 * 8, lane / 8 % 2 * 16};
}

// Sum `i` of a lane's four of a product of 16 rows of x and 8 of W.
HEADRACE_HOST_DEVICE constexpr int resident_sum_row(int lane, int i) {
  return lane / 4 + i / 2 * 8;
}
HEADRACE_HOST_DEVICE constexpr int resident_sum_column(int lane, int i) {
  return lane % 4 * 2 + i % 2;
}

// Products of 16 rows of x with their own first or last 8 have the rows' sums of squares on the
// diagonal: which lanes have one, of which row of 8, and which of their sums it is (of the first 8
// rows; two further on of the last).
HEADRACE_HOST_DEVICE constexpr bool resident_has_square(int lane) { return lane / 8 == lane % 4; }
HEADRACE_HOST_DEVICE constexpr int resident_square_row(int lane) { return lane / 4; }
HEADRACE_HOST_DEVICE constexpr int resident_square_sum(int lane) { return lane / 4 % 2; }

// Row of W of row `row` of the tile whose first is `first`; `second_half` as
// ResidentArguments::second_half.
template <int kColumns>
HEADRACE_HOST_DEVICE constexpr int resident_weight_row(int first, int row, int second_half) {
  return first + row % (kColumns / 2) + row / (kColumns / 2) * second_half;
}

// A float of the sums that the warps leave in shared memory: [warp][row][kColumns + pad].
template <int kRows, int kColumns>
HEADRACE_HOST_DEVICE constexpr int resident_sum_index(int warp, int row, int column) {
  return (warp * kRows + row) * (kColumns + kResidentPad) + column;
}

}  // namespace headrace
