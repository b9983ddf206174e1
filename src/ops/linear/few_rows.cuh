// The kernel few_rows of plain.h: W is streamed once, as the 16-row side of m16n8k16 products.
//
// A block takes 16 * kRowTiles rows of W and all of x; its warps take turns at spans of K and their
// sums meet in shared memory, in one order. The lanes of a quad load 16 bytes each, 64 in a row of
// W; which column of a span is which k of a product does not matter as long as x agrees, so what
// was loaded is used as it is: registers 0, 1 in one product, 2, 3 in the next.
#pragma once

#include "gpu/mma.cuh"
#include "gpu/reduce.cuh"
#include "ops/linear/plain.cuh"

namespace headrace::gpu {

constexpr int kFewWarps = 8;
constexpr int kFewThreads = kFewWarps * kWarpThreads;
constexpr int kFewSpan = 32;  // columns of W that a warp loads at a time
constexpr int kFewAhead = 4;  // spans in flight: 8 warps x 4 x 1 KB a row tile hide 1 us of DRAM

template <class T, class Y, int kColumnTiles, int kRowTiles>
__global__ void __launch_bounds__(kFewThreads) few_rows(PlainArguments<T, Y> args) {
  let_next_kernel_start();
  constexpr int kBlockRows = 16 * kRowTiles, kColumns = 8 * kColumnTiles;
  __shared__ float partial[kFewWarps][kBlockRows][kColumns + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int group = lane / 4, quad = lane % 4;
  const int32_t block_row = static_cast<int32_t>(blockIdx.x) * kBlockRows;

  // Rows past the end repeat the last: their sums are not stored.
  const T* weight[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = min(block_row + 16 * r + 8 * half + group, args.n - 1);
      weight[r][half] = args.weight + static_cast<int64_t>(row) * args.k + 8 * quad;
    }
  }
  const T* x[kColumnTiles];
#pragma unroll
  for (int c = 0; c < kColumnTiles; ++c) {
    x[c] = args.x.row(min(8 * c + group, args.m - 1)) + 8 * quad;
  }

  uint4 w[kFewAhead][kRowTiles][2];
  const auto load_span = [&](int s, int32_t column) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        w[s][r][half] =
            column < args.k ? load_streamed(weight[r][half] + column) : uint4{0, 0, 0, 0};
      }
    }
  };

  constexpr int32_t kStep = kFewWarps * kFewSpan * kFewAhead;
  const int32_t first = warp * kFewSpan * kFewAhead;
#pragma unroll
  for (int s = 0; s < kFewAhead; ++s) load_span(s, first + s * kFewSpan);
  wait_for_earlier_kernels();  // the first weights are on their way
  float sums[kRowTiles][kColumnTiles][4] = {};
  for (int32_t at = first; at < args.k; at += kStep) {
    uint4 b[kFewAhead][kColumnTiles];  // from L1: every warp of the block reads x
#pragma unroll
    for (int s = 0; s < kFewAhead; ++s) {
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c) {
        const int32_t column = at + s * kFewSpan;
        b[s][c] =
            column < args.k ? *reinterpret_cast<const uint4*>(x[c] + column) : uint4{0, 0, 0, 0};
      }
    }
#pragma unroll
    for (int s = 0; s < kFewAhead; ++s) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const uint4 low = w[s][r][0], high = w[s][r][1];
        const uint32_t even[4] = {low.x, high.x, low.y, high.y};
        const uint32_t odd[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int c = 0; c < kColumnTiles; ++c) {
          multiply_add<T>(sums[r][c], even, b[s][c].x, b[s][c].y);
          multiply_add<T>(sums[r][c], odd, b[s][c].z, b[s][c].w);
        }
      }
      load_span(s, at + kStep + s * kFewSpan);  // so that kFewAhead spans are always on their way
    }
  }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[warp][16 * r + 8 * (i / 2) + group][8 * c + 2 * quad + i % 2] = sums[r][c][i];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kColumns; i += kFewThreads) {
    const int row = i % kBlockRows,
              column = i / kBlockRows;  // of W, of x: neighbours store side by side
    if (column >= args.m || block_row + row >= args.n) continue;
    float sum = 0.0f;
#pragma unroll
    for (int from = 0; from < kFewWarps; ++from) sum += partial[from][row][column];
    finish_plain(args, column, block_row + row, sum);
  }
}

}  // namespace headrace::gpu
