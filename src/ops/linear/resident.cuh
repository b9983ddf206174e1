// The kernel of resident.h.
//   x [M, K], W [N, K], y of T, 16 bits; the norm's weights and the bias f32; sums in f32
// A block has kRows rows of x and kColumns rows of W (of a gated tile: gate, then up), whole, by
// the copy engine; its eight warps share the columns of K and their sums meet in shared memory.
// Rows past the end are whatever was there: their sums are not stored, and no other depends on
// them.
//
// What a block does after x has come is instructions, not bytes: four warps issue at a time, and a
// hundred instructions of every thread are 200 clocks.
#pragma once

#include "gpu/bulk_copy.cuh"
#include "gpu/mma.cuh"
#include "gpu/overlapped_launch.cuh"
#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/resident_layout.h"
#include "ops/rows/activation_cuda.cuh"

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

struct ResidentBarriers {
  Barrier weights, rows;
};

template <class T, int kRows, int kColumns>
class ResidentBlock {
  static constexpr int kHalf = kColumns / 2;
  static constexpr int kRowTiles = kRows / 16, kColumnTiles = kColumns / 8;
  static constexpr int kSumFloats = resident_sum_index<kRows, kColumns>(kResidentWarps, 0, 0);
  // Of y, a thread.
  static constexpr int kPairs = (kRows * kHalf + kResidentThreads - 1) / kResidentThreads;
  static_assert(sizeof(T) == 2 && kRows % 16 == 0 && kColumns % 16 == 0);

 public:
  __device__ ResidentBlock(const ResidentArguments<T>& args, std::byte* shared,
                           ResidentBarriers& barriers)
      : args_(args),
        shared_(shared),
        barriers_(barriers),
        row_bytes_(resident_row_bytes(args.k)),
        warp_(static_cast<int>(threadIdx.x) / kWarpThreads),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads),
        row_first_(static_cast<int32_t>(blockIdx.x) * kRows),
        column_first_(static_cast<int32_t>(blockIdx.y) * (args.gated ? kHalf : kColumns)) {}

  // By one thread, before the others go on.
  __device__ void init() const {
    barriers_.weights.init(kResidentWarps);
    barriers_.rows.init(kResidentWarps);
    fence_barrier_init();
  }

  // What no kernel writes. By the first lane of every warp, as ask_for_rows(): copies of several
  // lanes are made one after the other.
  __device__ void ask_for_weights() const {
    const T* rows[kColumns / kResidentWarps];
#pragma unroll
    for (int i = 0; i < kColumns / kResidentWarps; ++i) {
      const int32_t row = resident_weight_row<kColumns>(column_first_, warp_ + i * kResidentWarps,
                                                        args_.second_half);
      rows[i] = row < args_.n ? args_.weight.row(row) : nullptr;
    }
    const bool norm = args_.norm != nullptr && warp_ == 0;
    const uint32_t norm_bytes = norm ? static_cast<uint32_t>(args_.k) * 4 : 0;
    copy_rows(kRows, rows, barriers_.weights, norm_bytes);
    if (norm) copy_bytes(norm_weights(), args_.norm, norm_bytes, barriers_.weights);
  }

  // Where this warp's rows of x are, before they are there.
  __device__ void find_rows() {
#pragma unroll
    for (int i = 0; i < kRows / kResidentWarps; ++i) {
      const int32_t row = row_first_ + warp_ + i * kResidentWarps;
      x_[i] = row < args_.m ? args_.x.row(row) : nullptr;
      asm volatile("" : "+l"(x_[i]));  // now
    }
  }
  __device__ void ask_for_rows() const { copy_rows(0, x_, barriers_.rows, 0); }

  // What the product is added to, on its way beside the rows.
  __device__ void load_sums() {
    if (!args_.accumulates) return;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const Place at = place(i);
      before_[i] = at.there ? *reinterpret_cast<const uint32_t*>(at.y) : 0;
    }
  }

  // This warp's steps of K.
  template <bool kNormed>
  __device__ void multiply() {
    const uint32_t step_bytes = kResidentWarps * kResidentStep * sizeof(T);
    const auto first = static_cast<uint32_t>(warp_ * kResidentStep * sizeof(T));
    uint32_t x = operand(resident_x_place(lane_)) + first;
    uint32_t weight =
        operand(resident_weights_place(lane_)) + static_cast<uint32_t>(kRows * row_bytes_) + first;
    const float* norm = norm_weights() + warp_ * kResidentStep + 2 * (lane_ % 4);
    const int steps = args_.k / kResidentStep;
    asm volatile("" : "+r"(x), "+r"(weight), "+l"(norm));  // now, not when rows have come
    barriers_.weights.wait(0);
    barriers_.rows.wait(0);
    float factors[kRowTiles][2];
    if constexpr (kNormed) find_factors(factors, x, steps);
    Fragments next;
    if (warp_ < steps) load(next, x, weight);
    for (int step = warp_; step < steps; step += kResidentWarps) {
      Fragments now = next;
      x += step_bytes, weight += step_bytes;
      // Asked for before the products of those that are there.
      if (step + kResidentWarps < steps) load(next, x, weight);
      if constexpr (kNormed) {
        scale(now, factors, norm);
        norm += kResidentWarps * kResidentStep;
      }
      add_products(now);
    }
  }

  // REQUIRES: nobody reads rows any more
  __device__ void leave_sums() const {
    float* to = left() + resident_sum_index<kRows, kColumns>(warp_, resident_sum_row(lane_, 0),
                                                             resident_sum_column(lane_, 0));
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          constexpr int kRow = kColumns + kResidentPad;
          *reinterpret_cast<float2*>(to + (16 * r + 4 * i) * kRow + 8 * c) = {sums_[r][c][i],
                                                                              sums_[r][c][i + 1]};
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

  // Of the sums that warps leave each other, over the rows; after both the sums of squares and the
  // norm's weights.
  __device__ float* left() const { return reinterpret_cast<float*>(shared_); }
  __device__ float* left_squares() const {
    return reinterpret_cast<float*>(shared_ + max((kRows + kColumns) * row_bytes_, 4 * kSumFloats));
  }
  __device__ float* norm_weights() const { return left_squares() + kResidentWarps * kRows; }
  __device__ static Pair unpacked(uint32_t bits) { return *reinterpret_cast<const Pair*>(&bits); }

  // This warp's rows (null: none) to rows `to` + warp, + kResidentWarps, ... of shared memory.
  // Every warp arrives at `barrier` once, with the bytes of `beside` too.
  template <int kCount>
  __device__ __forceinline__ void copy_rows(int to, const T* const (&rows)[kCount],
                                            Barrier& barrier, uint32_t beside) const {
    const auto bytes = static_cast<uint32_t>(args_.k) * static_cast<uint32_t>(sizeof(T));
    uint32_t expected = beside;
#pragma unroll
    for (int i = 0; i < kCount; ++i) expected += rows[i] != nullptr ? bytes : 0;
    barrier.arrive_expecting(expected);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (rows[i] == nullptr) continue;
      copy_bytes(shared_ + (to + warp_ + i * kResidentWarps) * row_bytes_, rows[i], bytes, barrier);
    }
  }

  __device__ __forceinline__ uint32_t operand(ResidentPlace place) const {
    return shared_address(shared_) + static_cast<uint32_t>(place.row * row_bytes_ + place.byte);
  }

  // What this lane names at the first 16 rows of x and of W.
  __device__ __forceinline__ void load(Fragments& to, uint32_t x, uint32_t weight) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      load_matrices(to.x[r], x + static_cast<uint32_t>(16 * r * row_bytes_));
    }
#pragma unroll
    for (int c = 0; c < kColumnTiles; c += 2) {
      uint32_t both[4];
      load_matrices(both, weight + static_cast<uint32_t>(8 * c * row_bytes_));
      to.weight[c][0] = both[0], to.weight[c][1] = both[1];
      to.weight[c + 1][0] = both[2], to.weight[c + 1][1] = both[3];
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
  // 1 / sqrt(mean(x^2) + eps) of the rows of this lane's fragments. A fragment of 16 rows holds
  // that of its first 8 and of its last 8 as the other operand of a product: squares are the
  // diagonal. All warps call it together; `x` as of load().
  __device__ __forceinline__ void find_factors(float (&factors)[kRowTiles][2], uint32_t x,
                                               int steps) const {
    float squares[kRowTiles][2][4] = {};
    for (int step = warp_; step < steps; step += kResidentWarps) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        uint32_t rows[4];
        load_matrices(rows, x + static_cast<uint32_t>(16 * r * row_bytes_));
        multiply_add<T>(squares[r][0], rows, rows[0], rows[2]);
        multiply_add<T>(squares[r][1], rows, rows[1], rows[3]);
      }
      x += kResidentWarps * kResidentStep * sizeof(T);
    }
    if (resident_has_square(lane_)) {
      const bool odd = resident_square_sum(lane_) == 1;
      float* to = left_squares() + warp_ * kRows + resident_square_row(lane_);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        to[16 * r] = odd ? squares[r][0][1] : squares[r][0][0];
        to[16 * r + 8] = odd ? squares[r][1][3] : squares[r][1][2];
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* from = left_squares() + 16 * r + 8 * half + lane_ / 4;
        float sum = 0.0f;
#pragma unroll
        for (int warp = 0; warp < kResidentWarps; ++warp) sum += from[warp * kRows];
        factors[r][half] = rsqrtf(sum / static_cast<float>(args_.k) + args_.eps);
      }
    }
  }

  // As rms_norm; `norm` is the weight of this lane's first column.
  __device__ __forceinline__ void scale(Fragments& of, const float (&factors)[kRowTiles][2],
                                        const float* norm) const {
    const float2 weights[2] = {*reinterpret_cast<const float2*>(norm),
                               *reinterpret_cast<const float2*>(norm + 8)};
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Pair x = unpacked(of.x[r][i]);
        of.x[r][i] = packed<T>(to_float(x.values[0]) * factors[r][i % 2] * weights[i / 2].x,
                               to_float(x.values[1]) * factors[r][i % 2] * weights[i / 2].y);
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
    for (int warp = 0; warp < kResidentWarps; ++warp) {
      const float2 more = *reinterpret_cast<const float2*>(
          left() + resident_sum_index<kRows, kColumns>(warp, row, column));
      sum = warp == 0 ? more : float2{sum.x + more.x, sum.y + more.y};
    }
    return sum;
  }
  __device__ __forceinline__ float2 biased(float2 sum, int32_t column) const {
    if (args_.bias == nullptr) return sum;
    return {sum.x + args_.bias[column], sum.y + args_.bias[column + 1]};
  }

  const ResidentArguments<T>& args_;
  std::byte* const shared_;
  ResidentBarriers& barriers_;
  const int row_bytes_, warp_, lane_;
  const int32_t row_first_, column_first_;
  const T* x_[kRows / kResidentWarps];  // null past the end
  uint32_t before_[kPairs];
  float sums_[kRowTiles][kColumnTiles][4] = {};
};

template <class T, int kRows, int kColumns, bool kNormed>
__global__ void __launch_bounds__(kResidentThreads)
    linear_resident(const __grid_constant__ ResidentArguments<T> args) {
  extern __shared__ __align__(128) std::byte dynamic[];
  __shared__ ResidentBarriers barriers;
  let_next_kernel_start();
  ResidentBlock<T, kRows, kColumns> block(args, dynamic, barriers);
  const bool copies = threadIdx.x % kWarpThreads == 0;
  if (threadIdx.x == 0) block.init();
  __syncthreads();
  if (copies) block.ask_for_weights();
  block.find_rows();
  wait_for_earlier_kernels();  // in every thread that reads or overwrites what they wrote
  if (copies) block.ask_for_rows();
  block.load_sums();
  block.template multiply<kNormed>();
  __syncthreads();
  block.leave_sums();
  __syncthreads();
  block.store();
}

}  // namespace headrace::gpu
