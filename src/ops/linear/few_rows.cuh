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

// This lane's 16 bytes of a span, of each of its rows of W: zeros behind the end of K.
template <class T, int kRowTiles>
__device__ __forceinline__ void load_weight_span(uint4 (&w)[kRowTiles][2],
                                                 const T* const (&weight)[kRowTiles][2],
                                                 int32_t column, int32_t k) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      w[r][half] = column < k ? load_streamed(weight[r][half] + column) : uint4{0, 0, 0, 0};
    }
  }
}

// The same of x, from L1: every warp of the block reads it.
template <class T, int kColumnTiles>
__device__ __forceinline__ void load_input_span(uint4 (&b)[kColumnTiles],
                                                const T* const (&x)[kColumnTiles], int32_t column,
                                                int32_t k) {
#pragma unroll
  for (int c = 0; c < kColumnTiles; ++c) {
    b[c] = column < k ? *reinterpret_cast<const uint4*>(x[c] + column) : uint4{0, 0, 0, 0};
  }
}

template <class T, int kColumnTiles, int kRowTiles>
__device__ __forceinline__ void multiply_span(float (&sums)[kRowTiles][kColumnTiles][4],
                                              const uint4 (&w)[kRowTiles][2],
                                              const uint4 (&b)[kColumnTiles]) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    const uint4 low = w[r][0], high = w[r][1];
    const uint32_t even[4] = {low.x, high.x, low.y, high.y};
    const uint32_t odd[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      multiply_add<T>(sums[r][c], even, b[c].x, b[c].y);
      multiply_add<T>(sums[r][c], odd, b[c].z, b[c].w);
    }
  }
}

// The sums of a block's warps, [row of W][row of x]; a padding column keeps the banks apart.
template <int kColumnTiles, int kRowTiles>
using FewRowsPartial = float[kFewWarps][16 * kRowTiles][8 * kColumnTiles + 1];

template <int kColumnTiles, int kRowTiles>
__device__ __forceinline__ void store_partial(FewRowsPartial<kColumnTiles, kRowTiles>& partial,
                                              const float (&sums)[kRowTiles][kColumnTiles][4],
                                              int warp, int group, int quad) {
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
}

// Adds the warps' sums in their order and stores them as rows of y.
template <int kColumnTiles, int kRowTiles, class T, class Y>
__device__ __forceinline__ void finish_few_rows(
    const PlainArguments<T, Y>& args, const FewRowsPartial<kColumnTiles, kRowTiles>& partial,
    int32_t block_row) {
  constexpr int kBlockRows = 16 * kRowTiles, kColumns = 8 * kColumnTiles;
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

template <class T, class Y, int kColumnTiles, int kRowTiles>
__global__ void __launch_bounds__(kFewThreads) few_rows(PlainArguments<T, Y> args) {
  let_next_kernel_start();
  __shared__ FewRowsPartial<kColumnTiles, kRowTiles> partial;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int group = lane / 4, quad = lane % 4;
  const int32_t block_row = static_cast<int32_t>(blockIdx.x) * 16 * kRowTiles;

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

  constexpr int32_t kStep = kFewWarps * kFewSpan * kFewAhead;
  const int32_t first = warp * kFewSpan * kFewAhead;
  uint4 w[kFewAhead][kRowTiles][2];
#pragma unroll
  for (int s = 0; s < kFewAhead; ++s) {
    load_weight_span<T>(w[s], weight, first + s * kFewSpan, args.k);
  }
  wait_for_earlier_kernels();  // the first weights are on their way
  float sums[kRowTiles][kColumnTiles][4] = {};
  for (int32_t at = first; at < args.k; at += kStep) {
    uint4 b[kFewAhead][kColumnTiles];
#pragma unroll
    for (int s = 0; s < kFewAhead; ++s) load_input_span<T>(b[s], x, at + s * kFewSpan, args.k);
#pragma unroll
    for (int s = 0; s < kFewAhead; ++s) {
      multiply_span<T>(sums, w[s], b[s]);
      // kFewAhead spans are always on their way.
      load_weight_span<T>(w[s], weight, at + kStep + s * kFewSpan, args.k);
    }
  }

  store_partial<kColumnTiles, kRowTiles>(partial, sums, warp, group, quad);
  __syncthreads();
  finish_few_rows<kColumnTiles, kRowTiles>(args, partial, block_row);
}

}  // namespace headrace::gpu
