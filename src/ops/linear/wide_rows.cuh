// Rows of x as blocks_wide.cuh multiplies them: in F16, in the order of operand B of wgmma, cut
// into steps of K.
#pragma once

#include "gpu/f16_range.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vector.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/blocks_wide.h"
#include "ops/linear/wide_layout.h"

namespace headrace::gpu {

// A step is kWideStepChunks chunks of 32 columns of some tiles of 8 rows, and what these columns'
// chunks mean:
//   [16 columns: kWideStepChunks][tiles][core matrix: 2][8 rows][8 numbers]  of the first half
//   [tiles][means, what F16 leaves of them: 2][8 rows][mean of a chunk: 8]
//   [16 columns: kWideStepChunks][tiles][core matrix: 2][8 rows][8 numbers]  of the other
// A core matrix is 8 rows of x by 8 numbers along K, 128 bytes in one piece; products take two of
// them as 16 columns. A lane unpacks columns 4c to 4c + 3 of 16 and gives them as k = 2c, 2c + 8,
// 2c + 1, 2c + 9: so the first core matrix has columns 4c and 4c + 2, the second the others.
constexpr int kCoreBytes = 128;
constexpr int kChunkBytesOfTile = 4 * kCoreBytes, kMeansBytesOfTile = 2 * kCoreBytes;
constexpr int kStepBytesOfTile = kWideStepChunks * kChunkBytesOfTile + kMeansBytesOfTile;
static_assert(kStepBytesOfTile == kWideStepBytes);

template <class T>
struct StageRowsArguments {
  RowsOf<const T> x;
  std::byte* out;     // [x_blocks][steps] steps of `tiles` tiles
  float* factors;     // by row of x: what its sums are multiplied by (f16_range.cuh)
  int32_t m, chunks;  // of x
  int32_t steps, tiles;
};

constexpr int kStageRowsThreads = 1024;  // at most: a warp a step

// This thread's pieces of a row, of 8 numbers each. Whether one has a number beyond F16.
template <class T>
__device__ __forceinline__ bool stage_row(const StageRowsArguments<T>& args, int32_t row,
                                          float factor) {
  bool beyond = false;
  const int32_t rows = 8 * args.tiles, step_bytes = kStepBytesOfTile * args.tiles;
  const auto lane = static_cast<int32_t>(threadIdx.x) % kWarpThreads;
  const int32_t of_step = lane / 4, half = lane / 2 % 2, eight = lane % 2;
#pragma unroll 1
  for (auto step = static_cast<int32_t>(threadIdx.x) / kWarpThreads; step < args.steps;
       step += static_cast<int32_t>(blockDim.x) / kWarpThreads) {
    const int32_t chunk = wide_step_first_chunk(step, args.chunks) + of_step;
    Vector<__half, 4> cores[2] = {};
    float sum = 0.0f;
    // Chunks that the step before has had are zeros, and rows past the end.
    if (row < args.m && chunk >= step * kWideStepChunks) {
      const auto numbers = Vector<T, 8>::load(args.x.row(row) + 32 * chunk + 16 * half + 8 * eight);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float x = to_float(numbers.values[e]) * factor;
        if constexpr (!std::is_same_v<T, __half>) beyond |= beyond_f16(x);
        const __half number = from_float<__half>(x);
        sum += to_float(number);
        cores[e % 2].values[e / 4 * 2 + e % 4 / 2] = number;
      }
    }
    std::byte* const to = args.out + (int64_t{row / rows} * args.steps + step) * step_bytes +
                          row % rows / 8 * (2 * kCoreBytes) + row % 8 * 16;
    const int32_t means_at = kWideStepChunks / 2 * kChunkBytesOfTile * args.tiles;
    const int32_t before = of_step < kWideStepChunks / 2 ? 0 : kMeansBytesOfTile * args.tiles;
#pragma unroll
    for (int core = 0; core < 2; ++core) {
      cores[core].store(reinterpret_cast<__half*>(
          to + before + (2 * of_step + half) * (2 * kCoreBytes) * args.tiles + core * kCoreBytes +
          eight * 8));
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (lane % 4 == 0) {  // of the 32 columns of a chunk
      const float mean = sum / 32.0f;
      const __half most = from_float<__half>(mean);
      auto* const means = reinterpret_cast<__half*>(to + means_at + of_step * 2);
      means[0] = most;
      means[kCoreBytes / 2] = from_float<__half>(mean - to_float(most));
    }
  }
  return beyond;
}

// A block a row.
template <class T>
__global__ void __launch_bounds__(kStageRowsThreads) stage_rows(StageRowsArguments<T> args) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto row = static_cast<int32_t>(blockIdx.x);
  const bool smaller = __syncthreads_or(stage_row(args, row, 1.0f)) != 0;
  if (smaller) stage_row(args, row, kF16Smaller);
  if (threadIdx.x == 0) args.factors[row] = smaller ? kF16Larger : 1.0f;
}

}  // namespace headrace::gpu
