// Rows of x as blocks_wide.cuh multiplies them: in F16, in the order of operand B of wgmma, cut
// into steps of K.
#pragma once

#include "gpu/f16_range.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vector.cuh"
#include "ops/linear/blocks_wide.h"
#include "ops/linear/made_rows.cuh"
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
struct WideRowsArguments {
  MadeRows<T> rows;
  std::byte* out;        // [x blocks][steps] steps of `tiles` tiles
  float* factors;        // by row of x: what its sums are multiplied by (f16_range.cuh)
  int32_t steps, tiles;  // of BlocksWideRows
};

constexpr int kWideRowThreads = 1024;  // at most: a warp a step

// A thread's pieces of 8 numbers of its block's row: one of each of its warp's steps. Those of the
// first step are kept where the row is normalised.
template <class T, RowsOfX kSource>
class WideRow {
  using Numbers = Vector<T, 8>;
  using Weights = Vector<float, 8>;
  static constexpr bool kNormed = kSource == RowsOfX::kNormed;

 public:
  __device__ __forceinline__ explicit WideRow(const WideRowsArguments<T>& args)
      : args_(args),
        row_(static_cast<int32_t>(blockIdx.x)),
        lane_(static_cast<int32_t>(threadIdx.x) % kWarpThreads),
        first_step_(static_cast<int32_t>(threadIdx.x) / kWarpThreads),
        warps_(static_cast<int32_t>(blockDim.x) / kWarpThreads) {}

  __device__ __forceinline__ int32_t row() const { return row_; }

  // What no kernel writes.
  __device__ __forceinline__ void read_norm() {
    if (const int32_t from = column(first_step_); from >= 0) {
      weights_ = Weights::load(args_.rows.norm + from);
    }
  }
  // The sum of this thread's squares; what waits is added, to x too.
  __device__ __forceinline__ float read() {
    float squares = read(held_, first_step_);
#pragma unroll 1
    for (int32_t step = first_step_ + warps_; step < args_.steps; step += warps_) {
      Numbers numbers;
      squares += read(numbers, step);
    }
    return squares;
  }
  __device__ __forceinline__ void normalise(float factor) {
    factor_ = factor;
    gpu::normalise(held_, factor, weights_);
  }

  // Whether some number is beyond F16.
  __device__ __forceinline__ bool store(float factor) const {
    bool beyond = false;
    int32_t step = first_step_;
    if constexpr (kNormed) {
      beyond = store(held_, step, factor);
      step += warps_;
    }
#pragma unroll 1
    for (; step < args_.steps; step += warps_) {
      Numbers numbers;
      make(numbers, column(step));
      beyond |= store(numbers, step, factor);
    }
    return beyond;
  }

 private:
  // The first column of a piece; below 0 where it is zeros: past the last row, and chunks that the
  // step before has had.
  __device__ __forceinline__ int32_t column(int32_t step) const {
    const int32_t chunk = wide_step_first_chunk(step, args_.rows.k / 32) + lane_ / 4;
    const bool own = step < args_.steps && row_ < args_.rows.m && chunk >= step * kWideStepChunks;
    return own ? 32 * chunk + 8 * (lane_ % 4) : -1;
  }

  __device__ __forceinline__ float read(Numbers& numbers, int32_t step) const {
    numbers = {};
    const int32_t from = column(step);
    if (from < 0) return 0.0f;
    T* const x = args_.rows.x.row(row_) + from;
    numbers = Numbers::load(x);
    if (args_.rows.residual.data != nullptr) {
      add_residual(numbers, Numbers::load(args_.rows.residual.row(row_) + from),
                   args_.rows.residual_scale);
      numbers.store(x);
    }
    return sum_of_squares(numbers);
  }
  __device__ __forceinline__ void make(Numbers& numbers, int32_t from) const {
    numbers = {};
    if (from < 0) return;
    const T* const x = args_.rows.x.row(row_) + from;
    numbers = Numbers::load(x);
    if constexpr (kNormed) {
      gpu::normalise(numbers, factor_, Weights::load(args_.rows.norm + from));
    }
    if constexpr (kSource == RowsOfX::kGated) {
      const auto ups = Numbers::load(x + args_.rows.k);
      with_gate(args_.rows.activation, [&]<class Act>() { apply_gates<Act>(numbers, ups); });
    }
  }

  __device__ __forceinline__ bool store(const Numbers& numbers, int32_t step, float factor) const {
    if (step >= args_.steps) return false;
    const int32_t rows = 8 * args_.tiles, step_bytes = kStepBytesOfTile * args_.tiles;
    const int32_t of_step = lane_ / 4, half = lane_ / 2 % 2, eight = lane_ % 2;
    bool beyond = false;
    Vector<__half, 4> cores[2];
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float x = to_float(numbers.values[e]) * factor;
      if constexpr (!std::is_same_v<T, __half>) beyond |= beyond_f16(x);
      const __half number = from_float<__half>(x);
      sum += to_float(number);
      cores[e % 2].values[e / 4 * 2 + e % 4 / 2] = number;
    }
    std::byte* const to = args_.out + (int64_t{row_ / rows} * args_.steps + step) * step_bytes +
                          row_ % rows / 8 * (2 * kCoreBytes) + row_ % 8 * 16;
    const int32_t means_at = kWideStepChunks / 2 * kChunkBytesOfTile * args_.tiles;
    const int32_t before = of_step < kWideStepChunks / 2 ? 0 : kMeansBytesOfTile * args_.tiles;
#pragma unroll
    for (int core = 0; core < 2; ++core) {
      cores[core].store(reinterpret_cast<__half*>(
          to + before + (2 * of_step + half) * (2 * kCoreBytes) * args_.tiles + core * kCoreBytes +
          eight * 8));
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (lane_ % 4 == 0) {  // of the 32 columns of a chunk
      const float mean = sum / 32.0f;
      const __half most = from_float<__half>(mean);
      auto* const means = reinterpret_cast<__half*>(to + means_at + of_step * 2);
      means[0] = most;
      means[kCoreBytes / 2] = from_float<__half>(mean - to_float(most));
    }
    return beyond;
  }

  const WideRowsArguments<T>& args_;
  const int32_t row_, lane_, first_step_, warps_;
  float factor_ = 1.0f;
  Numbers held_{};
  Weights weights_{};
};

// Of all threads of the block, in one order whatever runs.
__device__ __forceinline__ float sum_of_wide_row(float value) {
  __shared__ float of_warps[kWideRowThreads / kWarpThreads];
  value = warp_sum(value);
  if (threadIdx.x % kWarpThreads == 0) of_warps[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarpThreads; ++warp) {
    sum += of_warps[warp];
  }
  return sum;
}

// A block a row.
template <class T, RowsOfX kSource>
__global__ void __launch_bounds__(kWideRowThreads)
    stage_wide_rows(const __grid_constant__ WideRowsArguments<T> args) {
  let_next_kernel_start();
  WideRow<T, kSource> row(args);
  if constexpr (kSource == RowsOfX::kNormed) row.read_norm();
  wait_for_earlier_kernels();
  if constexpr (kSource == RowsOfX::kNormed) {
    const float mean = sum_of_wide_row(row.read()) / static_cast<float>(args.rows.k);
    row.normalise(rsqrtf(mean + args.rows.eps));
  }
  const bool smaller = __syncthreads_or(row.store(1.0f)) != 0;
  if (smaller) row.store(kF16Smaller);
  if (threadIdx.x == 0) args.factors[row.row()] = smaller ? kF16Larger : 1.0f;
}

}  // namespace headrace::gpu
