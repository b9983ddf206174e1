// The kernel of stream.h.
//   x [M, K], W [N, K] of Operand, 16 bits or FP8; sums in f32; y [M, N] of T, 16 bits, or f32
// A block multiplies a tile of kTileRows rows of W with up to 64 or 128 rows of x (one or two
// warpgroups): D [x rows, W rows] = x W^T, 128 bytes of K a step. Two threads keep two rings of
// such steps full with the copy engine: one of W (two boxes a step), which comes from memory, and
// one of x, which is in the L2 cache, so that neither is asked for late for the other's sake. W is
// asked for before the kernels before this one have ended. Rows of x that are not there are
// whatever the ring held: a row of D depends on its row of x alone, and theirs are not stored.
//
// Where a tile has too few rows to fill the device, the blocks of a cluster share its columns: each
// leaves its sums in its own shared memory, and each adds up a part of the tile's rows over all of
// them, in the order of their ranks.
#pragma once

#include <cuda.h>

#include "gpu/cluster.cuh"
#include "gpu/mma.cuh"
#include "gpu/overlapped_launch.cuh"
#include "gpu/ring_place.h"
#include "gpu/tma.cuh"
#include "gpu/wgmma.cuh"
#include "gpu/wgmma_float8.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/stream.h"
#include "ops/rows/activation_cuda.cuh"

namespace headrace::gpu {

constexpr int kStreamRowBytes = 2 * kStreamColumns;
constexpr int kStreamProductBytes = 32;  // of K, of one product
constexpr int kStreamStagesMax = 24;     // of W
constexpr int kStreamXStagesMax = 8;
constexpr int kStreamGroupRows = 64;  // rows of x of a warpgroup
constexpr int kStreamPad = 8;         // floats after a row of sums: other banks for the next

struct StreamArguments {
  void* y;
  int64_t y_stride;  // elements
  const float* bias;
  const float* x_scales;        // of FP8, by row of x from here on; else null
  const float* w_scales;        // by row of W
  int32_t m, n_out;             // rows of x from here on, columns of y
  int32_t second_half;          // row of W of the second half of a tile, relative to the first
  int32_t steps, step_columns;  // of K, in all, and of one
  int32_t tiles, stages, x_stages;
  int32_t x_bytes;  // of a stage
  Activation activation;
  bool y_is_float, accumulates, gated;
};

template <int kTileRows, int kGroups>
struct StreamShape {
  static constexpr int kThreads = 128 * kGroups + 64;
  static constexpr int kHalfRows = kTileRows / 2;
  static constexpr int kWeightBytes = kTileRows * kStreamRowBytes;
  static constexpr int kRows = kStreamGroupRows * kGroups;
  static constexpr int kSums = kTileRows / 2;  // of a thread
  static constexpr int kSumStride = kTileRows + kStreamPad;
};

struct StreamBarriers {
  Barrier full[kStreamStagesMax], empty[kStreamStagesMax];
  Barrier x_full[kStreamXStagesMax], x_empty[kStreamXStagesMax];
};

// The steps of K of this block.
struct StreamRange {
  int32_t first, count;

  __device__ static StreamRange of(int32_t steps, int32_t rank, int32_t splits) {
    const int32_t from = steps * rank / splits, to = steps * (rank + 1) / splits;
    return {from, to - from};
  }
};

// --- the threads that copy ---

// Body(stage, tile, step of K), in the order in which a block goes through its tiles, as places in
// a ring are found empty.
template <class Body>
__device__ __forceinline__ void fill_ring(Barrier* empty, int32_t stages, int32_t first_tile,
                                          int32_t tile_step, int32_t tiles, StreamRange range,
                                          const Body& body) {
  RingTurn at;
  for (int32_t tile = first_tile; tile < tiles; tile += tile_step) {
    for (int32_t i = 0; i < range.count; ++i) {
      empty[at.slot].wait(at.phase ^ 1);  // the first round finds every stage empty
      body(at.slot, tile, range.first + i);
      at.next(stages);
    }
  }
}

// W, which no kernel writes.
template <int kTileRows, int kGroups>
__device__ void stream_weight(StreamBarriers& barriers, std::byte* ring, const CUtensorMap& weight,
                              const StreamArguments& args, int32_t first_tile, int32_t tile_step,
                              StreamRange range) {
  using Shape = StreamShape<kTileRows, kGroups>;
  const int32_t tile_rows = args.gated ? Shape::kHalfRows : kTileRows;
  fill_ring(barriers.empty, args.stages, first_tile, tile_step, args.tiles, range,
            [&](int32_t stage, int32_t tile, int32_t step) {
              std::byte* const to = ring + stage * Shape::kWeightBytes;
              Barrier& full = barriers.full[stage];
              const int32_t row = tile * tile_rows, column = step * args.step_columns;
              full.arrive_expecting(Shape::kWeightBytes);
              copy_box(to, weight, full, column, row);
              copy_box(to + Shape::kWeightBytes / 2, weight, full, column, row + args.second_half);
            });
}

__device__ inline void stream_x(StreamBarriers& barriers, std::byte* ring, const CUtensorMap& x,
                                const StreamArguments& args, int32_t first_tile, int32_t tile_step,
                                StreamRange range) {
  wait_for_earlier_kernels();
  fill_ring(barriers.x_empty, args.x_stages, first_tile, tile_step, args.tiles, range,
            [&](int32_t stage, int32_t /*tile*/, int32_t step) {
              Barrier& full = barriers.x_full[stage];
              full.arrive_expecting(static_cast<uint32_t>(args.x_bytes));
              copy_box(ring + stage * args.x_bytes, x, full, step * args.step_columns, 0);
            });
}

// --- the warpgroups that multiply ---

// Columns `column`, an even one, and the next of a row of y, of those that are there: the last of
// an odd number stands alone, and what is behind it is not touched.
template <class Y>
__device__ __forceinline__ float2 load_stream_pair(const Y* row, int32_t columns, int32_t column) {
  return {column < columns ? to_float(row[column]) : 0.0f,
          column + 1 < columns ? to_float(row[column + 1]) : 0.0f};
}
template <class Y>
__device__ __forceinline__ void store_stream_pair(Y* row, int32_t columns, int32_t column,
                                                  float2 value) {
  if (column + 1 < columns) {
    if constexpr (sizeof(Y) == 4) {
      *reinterpret_cast<float2*>(row + column) = value;
    } else {
      *reinterpret_cast<uint32_t*>(row + column) = packed<Y>(value.x, value.y);
    }
  } else if (column < columns) {
    row[column] = from_float<Y>(value.x);
  }
}

// Columns `column`, an even one, and the next of a row of y: sums of W's rows, or of gate and up.
template <class T>
__device__ __forceinline__ void finish_stream_pair(const StreamArguments& args, int32_t row,
                                                   int32_t column, float2 sums, float2 up) {
  if (row >= args.m || column >= args.n_out) return;
  if (args.x_scales != nullptr) {
    const float of_row = args.x_scales[row];
    const int32_t next = min(column + 1, args.n_out - 1);
    sums.x *= of_row * args.w_scales[column];
    sums.y *= of_row * args.w_scales[next];
    if (args.gated) {
      up.x *= of_row * args.w_scales[args.n_out + column];
      up.y *= of_row * args.w_scales[args.n_out + next];
    }
  }
  if (args.bias != nullptr) {
    const int32_t next = min(column + 1, args.n_out - 1);
    sums.x += args.bias[column];
    sums.y += args.bias[next];
    if (args.gated) {
      up.x += args.bias[args.n_out + column];
      up.y += args.bias[args.n_out + next];
    }
  }
  if (args.gated) {
    sums.x = activated(args.activation, sums.x) * up.x;
    sums.y = activated(args.activation, sums.y) * up.y;
  }
  const auto add_to = [&]<class Y>(Y* y) {
    Y* const at = y + row * args.y_stride;
    if (args.accumulates) {
      const float2 before = load_stream_pair(at, args.n_out, column);
      sums = {sums.x + before.x, sums.y + before.y};
    }
    store_stream_pair(at, args.n_out, column, sums);
  };
  if (args.y_is_float) {
    add_to(static_cast<float*>(args.y));
  } else {
    add_to(static_cast<T*>(args.y));
  }
}

template <class T, class Operand, int kTileRows, int kGroups>
class StreamConsumer {
  using Shape = StreamShape<kTileRows, kGroups>;
  static constexpr int kHalfSums = Shape::kSums / 2;

 public:
  __device__ StreamConsumer(StreamBarriers& barriers, const std::byte* ring,
                            const std::byte* x_ring, const StreamArguments& args)
      : barriers_(barriers),
        ring_(shared_address(ring)),
        x_ring_(shared_address(x_ring)),
        args_(args),
        group_(static_cast<int>(threadIdx.x) / 128),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
    row_ = group_ * kStreamGroupRows + 16 * warp + lane_ / 4;
    column_ = 2 * (lane_ % 4);
  }

  __device__ void multiply(int32_t steps) {
    constexpr auto kLayout = OperandLayout::of(kStreamRowBytes, 8 * kStreamRowBytes, 16);
    int32_t before = -1, x_before = -1;
    for (int32_t i = 0; i < steps; ++i) {
      barriers_.x_full[x_at_.slot].wait(x_at_.phase);
      barriers_.full[at_.slot].wait(at_.phase);
      const uint32_t weight = ring_ + static_cast<uint32_t>(at_.slot * Shape::kWeightBytes);
      const uint32_t x =
          x_ring_ + static_cast<uint32_t>(x_at_.slot * args_.x_bytes +
                                          group_ * kStreamGroupRows * kStreamRowBytes);
      pin(sums_);
      products_fence();
#pragma unroll
      for (int k = 0; k < kStreamRowBytes; k += kStreamProductBytes) {
        Product<Operand, kTileRows>::shared(sums_, kLayout.at(x + k), kLayout.at(weight + k),
                                            i > 0 || k > 0);
      }
      products_commit();
      products_wait<1>();
      give_back(before, x_before);
      before = at_.slot;
      x_before = x_at_.slot;
      at_.next(args_.stages);
      x_at_.next(args_.x_stages);
    }
    products_wait<0>();
    pin(sums_);
    give_back(before, x_before);
  }

  // Of a block that has all columns of the tile: what its sums are multiplied by and added to,
  // asked for before the products, since a warp that waits for each in turn takes microseconds a
  // tile, and of few rows one warp has all of them.
  __device__ void ask_beside(int32_t tile) {
    if (row_ >= args_.m) return;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int32_t row = weight_row(tile, j), next = min(row + 1, weight_rows() - 1);
      if constexpr (kFloat8) scales_[j] = {args_.w_scales[row], args_.w_scales[next]};
      if (args_.bias != nullptr) biases_[j] = {args_.bias[row], args_.bias[next]};
    }
  }
  __device__ void store(int32_t tile) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = row_ + 8 * half;
      if (row >= args_.m) continue;
      if (args_.y_is_float) {
        store_row<float>(tile, row, half);
      } else {
        store_row<T>(tile, row, half);
      }
    }
  }

  // The sums to this block's shared memory: [row][kSumStride].
  __device__ void leave(float* at) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = row_ + 8 * half;
      if (row >= args_.m) continue;
#pragma unroll
      for (int j = 0; j < kTileRows / 8; ++j) {
        *reinterpret_cast<float2*>(at + row * Shape::kSumStride + 8 * j + column_) = pair(j, half);
      }
    }
  }

 private:
  static constexpr bool kFloat8 = sizeof(Operand) == 1;
  static constexpr int kPairs = kTileRows / 8;  // of a row of sums

  // What this warp has multiplied, if anything.
  __device__ __forceinline__ void give_back(int32_t stage, int32_t x_stage) {
    if (stage < 0 || lane_ != 0) return;
    barriers_.empty[stage].arrive();
    barriers_.x_empty[x_stage].arrive();
  }
  __device__ __forceinline__ int32_t weight_rows() const {
    return args_.gated ? 2 * args_.n_out : args_.n_out;
  }
  // The row of W, or the last one, that the first sum of pair j is of.
  __device__ __forceinline__ int32_t weight_row(int32_t tile, int j) const {
    if (!args_.gated) return min(tile * kTileRows + column_ + 8 * j, args_.n_out - 1);
    const int32_t column = tile * Shape::kHalfRows + column_ + 8 * (j % (kPairs / 2));
    return min(column, args_.n_out - 1) + (j < kPairs / 2 ? 0 : args_.n_out);
  }
  // A sum with what stands beside it.
  __device__ __forceinline__ float2 complete(int j, int half, float of_row) const {
    float2 sum = pair(j, half);
    if constexpr (kFloat8) {
      sum.x *= of_row * scales_[j].x;
      sum.y *= of_row * scales_[j].y;
    }
    if (args_.bias != nullptr) {
      sum.x += biases_[j].x;
      sum.y += biases_[j].y;
    }
    return sum;
  }
  template <class Y>
  __device__ __forceinline__ void store_row(int32_t tile, int32_t row, int half) const {
    const int32_t first = tile * (args_.gated ? Shape::kHalfRows : kTileRows) + column_;
    auto* const y = static_cast<Y*>(args_.y) + row * args_.y_stride;
    const float of_row = kFloat8 ? args_.x_scales[row] : 1.0f;
    if (args_.gated) {
#pragma unroll
      for (int j = 0; j < kPairs / 2; ++j) {
        const float2 gate = complete(j, half, of_row);
        const float2 up = complete(j + kPairs / 2, half, of_row);
        store_stream_pair(y, args_.n_out, first + 8 * j,
                          {activated(args_.activation, gate.x) * up.x,
                           activated(args_.activation, gate.y) * up.y});
      }
      return;
    }
    float2 before[kPairs] = {};
    if (args_.accumulates) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) before[j] = load_stream_pair(y, args_.n_out, first + 8 * j);
    }
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float2 sum = complete(j, half, of_row);
      store_stream_pair(y, args_.n_out, first + 8 * j, {sum.x + before[j].x, sum.y + before[j].y});
    }
  }
  __device__ __forceinline__ float2 pair(int j, int half) const {
    return {sums_[4 * j + 2 * half], sums_[4 * j + 2 * half + 1]};
  }

  StreamBarriers& barriers_;
  const uint32_t ring_, x_ring_;
  const StreamArguments& args_;
  const int group_, lane_;
  int32_t row_, column_;
  RingTurn at_, x_at_;
  float sums_[Shape::kSums] = {};
  float2 scales_[kPairs], biases_[kPairs];  // of FP8; where there is a bias
};

// This block's share of a tile's columns of y, from the sums that the blocks of the cluster left.
template <class T, int kTileRows, int kGroups>
__device__ void add_up_cluster(const StreamArguments& args, const float* left, int32_t tile,
                               int32_t rank, int32_t splits) {
  using Shape = StreamShape<kTileRows, kGroups>;
  const int32_t columns = args.gated ? Shape::kHalfRows : kTileRows;
  const int32_t pairs = columns / 2 / splits;  // of this block, a row
  const int32_t first = rank * 2 * pairs;
  const auto sum_at = [&](int32_t row, int32_t column) {
    const uint32_t at = shared_address(left + row * Shape::kSumStride + column);
    float2 sum = load_pair_of_cluster(address_in_block(at, 0));
    for (int32_t from = 1; from < splits; ++from) {
      const float2 more = load_pair_of_cluster(address_in_block(at, static_cast<uint32_t>(from)));
      sum.x += more.x;
      sum.y += more.y;
    }
    return sum;
  };
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < args.m * pairs; i += Shape::kThreads) {
    const int32_t row = i / pairs, column = first + 2 * (i % pairs);
    const float2 value = sum_at(row, column);
    const float2 up = args.gated ? sum_at(row, column + Shape::kHalfRows) : value;
    finish_stream_pair<T>(args, row, tile * columns + column, value, up);
  }
}

template <class T, class Operand, int kTileRows, int kGroups>
__global__ void __launch_bounds__(StreamShape<kTileRows, kGroups>::kThreads, 1)
    linear_stream(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
                  const __grid_constant__ StreamArguments args, int32_t splits) {
  extern __shared__ std::byte dynamic[];
  __shared__ StreamBarriers barriers;
  // The patterns that the copy engine swizzles start at multiples of 1,024 bytes.
  std::byte* ring = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    prefetch_tensor_map(weight);
    prefetch_tensor_map(x);
    for (int32_t i = 0; i < args.stages; ++i) {
      barriers.full[i].init(1);
      barriers.empty[i].init(4 * kGroups);
    }
    for (int32_t i = 0; i < args.x_stages; ++i) {
      barriers.x_full[i].init(1);
      barriers.x_empty[i].init(4 * kGroups);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const auto rank = static_cast<int32_t>(splits > 1 ? cluster_rank() : 0);
  const int32_t first_tile = static_cast<int32_t>(blockIdx.x) / splits;
  const int32_t tile_step = static_cast<int32_t>(gridDim.x) / splits;
  const StreamRange range = StreamRange::of(args.steps, rank, splits);
  std::byte* const x_ring = ring + args.stages * StreamShape<kTileRows, kGroups>::kWeightBytes;
  auto* left = reinterpret_cast<float*>(ring);
  constexpr int kOfWeight = 128 * kGroups, kOfX = kOfWeight + 32;  // the threads that copy
  if (threadIdx.x >= kOfWeight) {
    if (threadIdx.x == kOfWeight) {
      stream_weight<kTileRows, kGroups>(barriers, ring, weight, args, first_tile, tile_step, range);
    } else if (threadIdx.x == kOfX) {
      stream_x(barriers, x_ring, x, args, first_tile, tile_step, range);
    }
  } else {
    wait_for_earlier_kernels();  // in every thread that reads what they wrote
    StreamConsumer<T, Operand, kTileRows, kGroups> consumer(barriers, ring, x_ring, args);
    for (int32_t tile = first_tile; tile < args.tiles; tile += tile_step) {
      if (splits == 1) consumer.ask_beside(tile);
      consumer.multiply(range.count);
      if (splits == 1) consumer.store(tile);
    }
    // Every step was multiplied by every warpgroup before the ring holds sums.
    if (splits > 1) {
      asm volatile("bar.sync 1, %0;" ::"n"(128 * kGroups) : "memory");
      consumer.leave(left);
    }
  }
  if (splits == 1) return;
  __syncwarp();
  cluster_sync();
  wait_for_earlier_kernels();  // the copying warps too
  add_up_cluster<T, kTileRows, kGroups>(args, left, first_tile, rank, splits);
  cluster_sync();  // nobody leaves while others read
}

}  // namespace headrace::gpu
