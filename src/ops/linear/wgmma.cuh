// The kernel of wgmma.h.
//   x [M, K], W [N, K] of T, 16 bits: gate's rows, then up's; sums in f32; y [M, N / 2] of T
// A cluster of two thread blocks computes 256 rows of y: each block 128 rows of x with the same
// kTile rows of W. One thread a block has the copy engine fill a ring of steps of 64 columns of K:
// its own 128 rows of x, and its half of W's rows, which the engine writes to both blocks (32 KB a
// step from the L2 cache where two blocks alone would take 48). Two warpgroups multiply 64 rows
// each (wgmma, kTile / 2 sums a thread), gate, add the bias, and hand boxes of 64 x 64 to the
// engine, which stores them while the ring fills for the next tile. Blocks are persistent; tiles
// come in the order of wgmma_layout.h.
//
// Rows and columns past the end are zeros on the way in and are clipped on the way out.
#pragma once

#include <cuda.h>

#include "gpu/cluster.cuh"
#include "gpu/mma.cuh"
#include "gpu/overlapped_launch.cuh"
#include "gpu/ring_place.h"
#include "gpu/tma.cuh"
#include "gpu/wgmma.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/wgmma_layout.h"
#include "ops/rows/activation_cuda.cuh"

namespace headrace::gpu {

struct WgmmaArguments {
  const float* bias;  // [N] or null
  WgmmaGrid grid;
  int32_t steps;        // of K
  int32_t second_half;  // rows of W from the first half of a tile to the second
  int32_t n_out;        // columns of y
  SigmoidGate gate;
};

template <int kTile>
struct alignas(1024) WgmmaShared {
  using Shape = WgmmaShape<kTile>;
  std::byte ring[Shape::kStages][Shape::kStageBytes];
  std::byte out[kWgmmaGroups][kWgmmaBoxes][kWgmmaBoxBytes];
  Barrier full[Shape::kStages], empty[Shape::kStages];

  // A stage is full when its bytes are there, empty when every warp that multiplies has read it, in
  // both blocks: half of it is written from the other one.
  __device__ void init_barriers() {
    for (int i = 0; i < Shape::kStages; ++i) {
      full[i].init(1);
      empty[i].init(kWgmmaBlocks * kWgmmaGroups * 4);
    }
    fence_barrier_init();
  }
};

// --- the thread that copies ---

template <int kTile>
__device__ void copy_wgmma_tiles(WgmmaShared<kTile>& shared, const CUtensorMap& weight,
                                 const CUtensorMap& x, const WgmmaArguments& args, int32_t rank,
                                 int32_t cluster, int32_t clusters) {
  using Shape = WgmmaShape<kTile>;
  constexpr int32_t kOutColumns = Shape::kHalfRows;
  constexpr uint16_t kBoth = (1u << kWgmmaBlocks) - 1;
  wait_for_earlier_kernels();
  RingPlace<Shape::kStages> at;
  for (int32_t index = cluster; index < args.grid.tiles(); index += clusters) {
    const WgmmaTile tile = wgmma_tile(args.grid, index);
    const int32_t x_row = wgmma_row(tile.row, rank, 0);
    const int32_t weight_row = wgmma_weight_row(tile.column, kOutColumns, args.second_half, rank);
    for (int32_t step = 0; step < args.steps; ++step) {
      shared.empty[at.slot].wait(at.parity ^ 1);  // the first round finds every stage empty
      std::byte* stage = shared.ring[at.slot];
      Barrier& full = shared.full[at.slot];
      full.arrive_expecting(Shape::kStageBytes);
      copy_box(stage, x, full, step * kWgmmaStep, x_row);
      copy_box_to_blocks(stage + wgmma_half_offset<kTile>(rank), weight, full, kBoth,
                         step * kWgmmaStep, weight_row);
      at.advance();
    }
  }
}

// --- a warpgroup that multiplies ---

template <class T, int kTile>
class WgmmaConsumer {
  using Shape = WgmmaShape<kTile>;
  static constexpr int kOutColumns = Shape::kHalfRows;
  static constexpr int kOutBoxes = kOutColumns / kWgmmaBoxColumns;
  static constexpr int kTurns = kOutBoxes < kWgmmaBoxes ? kOutBoxes : kWgmmaBoxes;
  static constexpr int kBarrier = 1;  // + group: its own threads; 0 is __syncthreads()

 public:
  __device__ WgmmaConsumer(WgmmaShared<kTile>& shared, const CUtensorMap& y,
                           const WgmmaArguments& args, int group)
      : shared_(shared),
        y_(y),
        args_(args),
        group_(group),
        thread_(static_cast<int>(threadIdx.x) % 128) {}

  __device__ __forceinline__ void run(int32_t rank, int32_t cluster, int32_t clusters) {
    wait_for_earlier_kernels();  // some may still read what y holds
    for (int32_t index = cluster; index < args_.grid.tiles(); index += clusters) {
      const WgmmaTile tile = wgmma_tile(args_.grid, index);
      multiply();
      store(wgmma_row(tile.row, rank, group_), tile.column * kOutColumns);
    }
    if (thread_ == 0) stores_wait<0>();
  }

 private:
  __device__ __forceinline__ void multiply() {
    constexpr auto kOperand = wgmma_operand();
    const uint32_t ring = shared_address(shared_.ring);
    int before = -1;
    for (int32_t step = 0; step < args_.steps; ++step) {
      shared_.full[at_.slot].wait(at_.parity);
      const uint32_t stage = ring + static_cast<uint32_t>(at_.slot * Shape::kStageBytes);
      pin(sums_);
      products_fence();
#pragma unroll
      for (int k = 0; k < kWgmmaStep; k += 16) {
        const auto x = stage + static_cast<uint32_t>(wgmma_x_offset(group_, k));
        const auto weight = stage + static_cast<uint32_t>(wgmma_weight_offset<kTile>(k));
        Product<T, kTile>::shared(sums_, kOperand.at(x), kOperand.at(weight), step > 0 || k > 0);
      }
      products_commit();
      products_wait<1>();
      if (before >= 0) release(before);
      before = at_.slot;
      at_.advance();
    }
    products_wait<0>();
    pin(sums_);
    release(before);
  }

  // This warp reads no more of a stage: both blocks may write their parts of it, here and there.
  __device__ __forceinline__ void release(int stage) {
    if (const int lane = thread_ % 32; lane < kWgmmaBlocks) {
      arrive_in_block(shared_.empty[stage], static_cast<uint32_t>(lane));
    }
  }

  // 64 rows of y from `row` on, box after box; kTurns places in shared memory take turns.
  __device__ __forceinline__ void store(int32_t row, int32_t column) {
    add_bias(column);
#pragma unroll
    for (int box = 0; box < kOutBoxes; ++box) {
      std::byte* to = shared_.out[group_][box % kTurns];
      if (thread_ == 0) stores_wait_read<kTurns - 1>();
      named_sync();
      write_box(box, to);
      fence_async_proxy();
      named_sync();
      if (thread_ == 0) {
        store_box(y_, to, column + box * kWgmmaBoxColumns, row);
        stores_commit();
      }
    }
  }

  __device__ __forceinline__ void write_box(int box, std::byte* to) const {
    constexpr int kPairs = kWgmmaBoxColumns / 8;
    const WgmmaSumPlace place = wgmma_sum_place(thread_);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int j = box * kPairs + i;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 value = finished(j, half);
        *reinterpret_cast<uint32_t*>(
            to + swizzled_128(place.row + 8 * half, 2 * (8 * i + place.column))) =
            packed<T>(value.x, value.y);
      }
    }
  }

  // Columns 8 j and the next of this thread of a tile of y.
  __device__ __forceinline__ float2 finished(int j, int half) const {
    const float2 value = pair(j, half);
    const float2 up = pair(j + kOutColumns / 8, half);
    const float2 gate = gated_pair(args_.gate, value);
    return {gate.x * up.x, gate.y * up.y};
  }
  __device__ __forceinline__ void add_bias(int32_t column) {
    if (args_.bias == nullptr) return;
#pragma unroll
    for (int j = 0; j < kTile / 8; ++j) {
      const bool second = j >= kOutColumns / 8;
      const int32_t at =
          column + wgmma_sum_place(thread_).column + 8 * (second ? j - kOutColumns / 8 : j);
      const float* bias = args_.bias + (second ? args_.n_out : 0);
      const float low = at < args_.n_out ? bias[at] : 0.0f;
      const float high = at + 1 < args_.n_out ? bias[at + 1] : 0.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sums_[4 * j + 2 * half] += low;
        sums_[4 * j + 2 * half + 1] += high;
      }
    }
  }
  __device__ __forceinline__ float2 pair(int j, int half) const {
    return {sums_[4 * j + 2 * half], sums_[4 * j + 2 * half + 1]};
  }

  __device__ __forceinline__ void named_sync() const {
    asm volatile("bar.sync %0, 128;" ::"r"(kBarrier + group_) : "memory");
  }

  WgmmaShared<kTile>& shared_;
  const CUtensorMap& y_;
  const WgmmaArguments& args_;
  const int group_, thread_;
  RingPlace<Shape::kStages> at_;
  float sums_[Shape::kSums];
};

template <class T, int kTile>
__global__ void __launch_bounds__(WgmmaShape<kTile>::kThreads, 1)
    linear_wgmma(const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,
                 const __grid_constant__ CUtensorMap y,
                 const __grid_constant__ WgmmaArguments args) {
  extern __shared__ std::byte dynamic[];
  // The patterns that the copy engine swizzles start at multiples of 1,024 bytes.
  auto& shared = *reinterpret_cast<WgmmaShared<kTile>*>(
      dynamic + (1024 - shared_address(dynamic) % 1024) % 1024);
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    prefetch_tensor_map(weight);
    prefetch_tensor_map(x);
    prefetch_tensor_map(y);
    shared.init_barriers();
  }
  __syncthreads();
  cluster_sync();  // the other block's barriers are there too
  const auto rank = static_cast<int32_t>(cluster_rank());
  const int32_t cluster = static_cast<int32_t>(blockIdx.x) / kWgmmaBlocks;
  const int32_t clusters = static_cast<int32_t>(gridDim.x) / kWgmmaBlocks;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    registers_lower<24>();
    if (threadIdx.x == 0) {
      copy_wgmma_tiles<kTile>(shared, weight, x, args, rank, cluster, clusters);
    }
  } else {
    registers_raise<240>();
    WgmmaConsumer<T, kTile>(shared, y, args, warpgroup - 1).run(rank, cluster, clusters);
  }
  __syncwarp();
  cluster_sync();  // nobody leaves while the other block writes or arrives here
}

}  // namespace headrace::gpu
