// The kernel of linear_resident.h.
//   x [M, K], W [N, K], y of T, 16 bits; the norm's weights and the bias f32; sums in f32
// A block has kRows rows of x and kColumns rows of W, whole. Eight warps share the columns of K of
// one half of W's rows, eight those of the other (of a gated tile: gate and up), and their sums
// meet in shared memory. Rows past the end are zeros.
#pragma once

#include "gpu/async_copy.cuh"
#include "gpu/mma.cuh"
#include "gpu/overlapped_launch.cuh"
#include "gpu/reduce.cuh"
#include "ops/activation_cuda.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear_resident_layout.h"

namespace headrace::gpu {

template <class T>
struct ResidentArguments {
  RowsOf<const T> x;
  RowsOf<const T> weight;
  RowsOf<T> y;
  const float* norm;  // [K], or null
  const float* bias;  // [N], or null
  float eps;
  int32_t m, n, k;
  int32_t n_out;        // columns of y
  int32_t second_half;  // row of W of the second half of a tile, relative to the first
  Activation activation;
  bool gated, accumulates;
};

template <class T, int kRows, int kColumns>
class ResidentBlock {
  static constexpr int kHalf = kColumns / 2;
  static constexpr int kRowTiles = kRows / 16, kColumnTiles = kHalf / 8;
  static constexpr int kWarpRows = kRows / kResidentWarps;  // that a warp asks for
  static constexpr int kWarpColumns = kColumns / kResidentWarps;
  static constexpr int kElements = kAccessBytes / static_cast<int>(sizeof(T));  // of an access
  // Of y, a thread.
  static constexpr int kPairs = (kRows * kHalf + kResidentThreads - 1) / kResidentThreads;
  static_assert(sizeof(T) == 2 && kRows % 16 == 0 && kColumns % 16 == 0);
  using Access = Vector<T, kElements>;

 public:
  __device__ ResidentBlock(const ResidentArguments<T>& args, std::byte* shared)
      : args_(args),
        shared_(shared),
        row_bytes_(resident_row_bytes(args.k)),
        steps_(resident_steps(args.k)),
        warp_(static_cast<int>(threadIdx.x) / kWarpThreads),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads),
        row_first_(static_cast<int32_t>(blockIdx.x) * kRows),
        column_first_(static_cast<int32_t>(blockIdx.y) * (args.gated ? kHalf : kColumns)) {
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const int32_t row = row_first_ + warp_ + i * kResidentWarps;
      x_[i] = row < args.m ? args.x.row(row) : nullptr;
    }
  }

  // What no kernel writes.
  __device__ void ask_for_weights() const {
    const T* weights[kWarpColumns];
#pragma unroll
    for (int i = 0; i < kWarpColumns; ++i) {
      const int32_t row = resident_weight_row<kColumns>(column_first_, warp_ + i * kResidentWarps,
                                                        args_.second_half);
      weights[i] = row < args_.n ? args_.weight.row(row) : nullptr;
    }
    copy_rows(kRows + warp_, weights);
    if (args_.norm == nullptr) return;
    for (int at = 4 * static_cast<int>(threadIdx.x); at < args_.k; at += 4 * kResidentThreads) {
      copy_async(shared_address(norm_weights() + at), args_.norm + at, true);
    }
  }

  __device__ void ask_for_rows() const { copy_rows(warp_, x_); }

  // What the product is added to, on its way beside the rows.
  __device__ void load_sums() {
    if (!args_.accumulates) return;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const Place at = place(i);
      before_[i] = at.there ? *reinterpret_cast<const uint32_t*>(at.y) : 0;
    }
  }

  // Each warp the rows that it asked for, as rms_norm does, in place.
  // REQUIRES: copies_wait() in this thread. All threads call it together.
  __device__ void normalise() const {
    float scale[kWarpRows] = {};
    for (int at = lane_; at < args_.k / kElements; at += kWarpThreads) {
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) {
        const Access value = Access::load(element(warp_ + i * kResidentWarps, at));
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          const float x = to_float(value.values[e]);
          scale[i] += x * x;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      scale[i] = rsqrtf(warp_sum(scale[i]) / static_cast<float>(args_.k) + args_.eps);
    }
    __syncthreads();  // the norm's weights, which other threads asked for
    for (int at = lane_; at < args_.k / kElements; at += kWarpThreads) {
      const auto weight = Vector<float, kElements>::load(norm_weights() + at * kElements);
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) {
        T* const to = element(warp_ + i * kResidentWarps, at);
        Access value = Access::load(to);
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          value.values[e] = from_float<T>(to_float(value.values[e]) * scale[i] * weight.values[e]);
        }
        value.store(to);
      }
    }
  }

  // REQUIRES: all rows are in shared memory
  __device__ void multiply() {
    Fragments first, second;
    int step = resident_part(warp_);
    if (step < steps_) load(first, step);
    // The next fragments are asked for before the products of those that are there.
    while (step < steps_) {
      if (step + kResidentParts < steps_) load(second, step + kResidentParts);
      add_products(first);
      step += kResidentParts;
      if (step >= steps_) break;
      if (step + kResidentParts < steps_) load(first, step + kResidentParts);
      add_products(second);
      step += kResidentParts;
    }
  }

  // REQUIRES: nobody reads rows any more
  __device__ void leave_sums() const {
    const int half = resident_half(warp_) * kHalf;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const int row = 16 * r + resident_sum_row(lane_, i);
          const int column = half + 8 * c + resident_sum_column(lane_, i);
          *reinterpret_cast<float2*>(
              left() + resident_sum_index<kRows, kColumns>(resident_part(warp_), row, column)) = {
              sums_[r][c][i], sums_[r][c][i + 1]};
        }
      }
    }
  }

  // REQUIRES: all warps have left their sums
  __device__ void store() const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const Place at = place(i);
      if (!at.there) continue;
      float2 value = biased(total(at.row, at.column), at.out_column);
      if (args_.gated) {
        const float2 up = biased(total(at.row, at.column + kHalf), args_.n_out + at.out_column);
        value.x = activated(args_.activation, value.x) * up.x;
        value.y = activated(args_.activation, value.y) * up.y;
      }
      if (args_.accumulates) {
        const Pair before = unpacked(before_[i]);
        value.x += to_float(before.values[0]);
        value.y += to_float(before.values[1]);
      }
      *reinterpret_cast<uint32_t*>(at.y) = packed<T>(value.x, value.y);
    }
  }

 private:
  using Pair = Vector<T, 2>;
  struct Fragments {
    uint32_t x[kRowTiles][4];
    uint32_t weight[kColumnTiles][2];
  };
  // Two columns of a row of y.
  struct Place {
    int row, column;  // of the tile
    int32_t out_column;
    T* y;
    bool there;
  };

  __device__ std::byte* row_at(int row) const { return shared_ + row * row_bytes_; }
  __device__ T* element(int row, int access) const {
    return reinterpret_cast<T*>(row_at(row) + access * kAccessBytes);
  }
  // Of the sums that warps leave each other, over the rows; the norm's weights, after both.
  __device__ float* left() const { return reinterpret_cast<float*>(shared_); }
  __device__ float* norm_weights() const {
    constexpr int kSums = resident_sum_index<kRows, kColumns>(kResidentParts, 0, 0);
    return reinterpret_cast<float*>(
        shared_ + max((kRows + kColumns) * row_bytes_, static_cast<int>(sizeof(float)) * kSums));
  }
  __device__ static Pair unpacked(uint32_t bits) { return *reinterpret_cast<const Pair*>(&bits); }

  // Rows (zeros for null) to rows `to`, to + kResidentWarps, ... of shared memory.
  template <int kCount>
  __device__ __forceinline__ void copy_rows(int to, const T* const (&rows)[kCount]) const {
    const uint32_t first = shared_address(row_at(to));
#pragma unroll 1
    for (int at = lane_; at < steps_ * kResidentStep / kElements; at += kWarpThreads) {
      const bool inside = at * kElements < args_.k;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        copy_async(
            first + static_cast<uint32_t>(i * kResidentWarps * row_bytes_ + at * kAccessBytes),
            rows[i] + at * kElements, inside && rows[i] != nullptr);
      }
    }
  }

  __device__ __forceinline__ uint32_t operand(int row, ResidentPlace place, int step) const {
    return shared_address(row_at(row + place.row)) +
           static_cast<uint32_t>(place.byte + step * kResidentStep * static_cast<int>(sizeof(T)));
  }

  __device__ __forceinline__ void load(Fragments& to, int step) const {
    const int weights = kRows + resident_half(warp_) * kHalf;
    if constexpr (kColumnTiles == 1) {
      load_matrices(to.weight[0], operand(weights, resident_few_weights_place(lane_), step));
    } else {
#pragma unroll
      for (int c = 0; c < kColumnTiles; c += 2) {
        uint32_t both[4];
        load_matrices(both, operand(weights + 8 * c, resident_weights_place(lane_), step));
        to.weight[c][0] = both[0], to.weight[c][1] = both[1];
        to.weight[c + 1][0] = both[2], to.weight[c + 1][1] = both[3];
      }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      load_matrices(to.x[r], operand(16 * r, resident_x_place(lane_), step));
    }
  }

  __device__ __forceinline__ void add_products(const Fragments& of) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c) {
        multiply_add<T>(sums_[r][c], of.x[r], of.weight[c][0], of.weight[c][1]);
      }
    }
  }

  __device__ __forceinline__ Place place(int i) const {
    const int pair = static_cast<int>(threadIdx.x) + i * kResidentThreads;
    const int row = args_.gated ? pair / (kHalf / 2) : pair / kHalf;
    const int column = 2 * (args_.gated ? pair % (kHalf / 2) : pair % kHalf);
    const int32_t out_row = row_first_ + row, out_column = column_first_ + column;
    const bool there = row < kRows && out_row < args_.m && out_column < args_.n_out;
    return {row, column, out_column, args_.y.row(there ? out_row : 0) + (there ? out_column : 0),
            there};
  }

  __device__ __forceinline__ float2 total(int row, int column) const {
    float2 sum{};
#pragma unroll
    for (int part = 0; part < kResidentParts; ++part) {
      const float2 more = *reinterpret_cast<const float2*>(
          left() + resident_sum_index<kRows, kColumns>(part, row, column));
      sum = part == 0 ? more : float2{sum.x + more.x, sum.y + more.y};
    }
    return sum;
  }
  __device__ __forceinline__ float2 biased(float2 sum, int32_t column) const {
    if (args_.bias == nullptr) return sum;
    return {sum.x + args_.bias[column], sum.y + args_.bias[column + 1]};
  }

  const ResidentArguments<T>& args_;
  std::byte* const shared_;
  const int row_bytes_, steps_, warp_, lane_;
  const int32_t row_first_, column_first_;
  const T* x_[kWarpRows];  // this warp's rows, or null past the end
  uint32_t before_[kPairs];
  float sums_[kRowTiles][kColumnTiles][4] = {};
};

template <class T, int kRows, int kColumns>
__global__ void __launch_bounds__(kResidentThreads)
    linear_resident(const __grid_constant__ ResidentArguments<T> args) {
  extern __shared__ __align__(128) std::byte dynamic[];
  let_next_kernel_start();
  ResidentBlock<T, kRows, kColumns> block(args, dynamic);
  block.ask_for_weights();
  wait_for_earlier_kernels();
  block.ask_for_rows();
  block.load_sums();
  copies_wait();
  if (args.norm != nullptr) block.normalise();
  __syncthreads();
  block.multiply();
  __syncthreads();
  block.leave_sums();
  __syncthreads();
  block.store();
}

}  // namespace headrace::gpu
