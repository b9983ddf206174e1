// The kernel of grouped.h.
//   x [T, K], W [E N, K] of T, 16 bits; sums in f32; y [R, N] or [R, N / 2] of T
// Blocks are persistent. Each makes the list of tiles of what `starts` says (grouped_layout.h) and
// takes every so manieth of it, so that the shape of the launch is the same whoever chose what. Of
// two products over one list the second asks for W while the first ends. The first warpgroup keeps
// a ring of steps of 64 columns of K full: one thread has the copy engine bring rows of W, two
// warps copy rows of x, which lie anywhere, 16 bytes a thread, swizzled as the engine would. The
// others multiply 64 rows each (wgmma, x as the 64-row side), gate, and store rows of y by way of
// shared memory.
//
// Rows of a tile behind the end of an expert's are whatever the ring held: a row of sums depends on
// its row of x alone, and theirs are not stored. Rows of W behind an expert's, which are the next
// one's or zeros, are columns that are not stored.
#pragma once

#include <cuda.h>

#include "gpu/cluster.cuh"
#include "gpu/mma.cuh"
#include "gpu/overlapped_launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/ring_place.h"
#include "gpu/thread_copy.cuh"
#include "gpu/tma.cuh"
#include "gpu/wgmma.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/grouped_layout.h"
#include "ops/rows/activation_cuda.cuh"

namespace headrace::gpu {

struct GroupedArguments {
  const std::byte* x;
  int64_t x_stride;       // bytes, a multiple of 16
  const int32_t* rows;    // [R], or null
  const int32_t* starts;  // [experts + 1]
  const float* bias;      // [experts N] or null
  std::byte* y;
  int64_t y_stride;  // bytes, a multiple of 16
  int32_t experts;
  int32_t expert_rows;  // N
  int32_t second_half;  // rows of W from the first half of a tile to the second
  int32_t n_out;        // columns of y
  int32_t columns;      // tiles of them
  int32_t steps;        // of K
  SigmoidGate gate;
  bool clamped;           // kClampedSwish, whose sigmoid `gate` is
  bool starts_are_there;  // before the kernels before this one have ended; x is not
};

template <class Shape>
struct alignas(1024) GroupedShared {
  std::byte ring[Shape::kStages][Shape::kStageBytes];
  std::byte out[Shape::kGroups][kWgmmaBoxBytes];
  Barrier full[Shape::kStages], empty[Shape::kStages];
  int32_t starts[kGroupedExpertsMax + 1];       // of the list
  int32_t first_tiles[kGroupedExpertsMax + 1];  // of all tiles

  // A stage is full when W's bytes and what each thread copies of x are there, empty when every
  // warp that multiplies has read it, in all blocks: half of it may be written from another one.
  __device__ void init_barriers() {
    for (int i = 0; i < Shape::kStages; ++i) {
      full[i].init(1 + Shape::kRowThreads);
      empty[i].init(Shape::kBlocks * Shape::kGroups * 4);
    }
    fence_barrier_init();
  }
};

// Who this block is among those that take tiles in turns.
struct GroupedTurn {
  int32_t rank;         // in its cluster
  int32_t first, step;  // of tiles
};

// A tile as a block gets it.
struct GroupedWork {
  int32_t first, last;  // rows of the list; none where first >= last
  int32_t weight_row;   // of the first half of its tile of W
  int32_t column;       // of y
  bool split;
};

template <class Shape, bool kGated>
struct GroupedColumns {
  static constexpr int kOut = kGated ? Shape::kHalfRows : Shape::kTile;  // columns of y of a tile
  static constexpr int kBox = kOut < kWgmmaBoxColumns ? kOut : kWgmmaBoxColumns;  // at a time
};

template <class Shape, bool kGated>
__device__ __forceinline__ GroupedWork grouped_work(const GroupedShared<Shape>& shared,
                                                    const GroupedArguments& args, int32_t index,
                                                    int32_t rank) {
  const int32_t expert = expert_of_tile(shared.first_tiles, args.experts, index);
  const int32_t first = shared.starts[expert], last = shared.starts[expert + 1];
  const auto tiles = ExpertTiles<Shape>::of(last - first, args.columns);
  const GroupedTile tile = grouped_tile(tiles, index - shared.first_tiles[expert], rank);
  const int32_t column = tile.column * GroupedColumns<Shape, kGated>::kOut;
  return {.first = first + tile.row,
          .last = last,
          .weight_row = expert * args.expert_rows + column,
          .column = column,
          .split = tile.split};
}

// The next kernel starts no sooner than this one knows `starts`, which a product behind it may read
// as soon as it starts.
__device__ __forceinline__ void start_after_earlier_kernels() {
  wait_for_earlier_kernels();
  let_next_kernel_start();
}

// By the first warp: where each expert's rows and tiles begin. `starts` comes from the L2 cache: it
// may be read before this kernel has waited for those before it, and a line of the L1 cache may be
// of a layer before.
template <class Shape>
__device__ void list_tiles(GroupedShared<Shape>& shared, const GroupedArguments& args) {
  const int lane = static_cast<int>(threadIdx.x);
  const int32_t each = (args.experts + kWarpThreads - 1) / kWarpThreads;
  const int32_t from = min(lane * each, args.experts), to = min(from + each, args.experts);
  int32_t own = 0;
  for (int32_t e = from; e < to; ++e) {
    const int32_t first = __ldcg(args.starts + e);
    shared.starts[e] = first;
    own += ExpertTiles<Shape>::of(__ldcg(args.starts + e + 1) - first, args.columns).count();
  }
  int32_t before = own;  // and with it, until the end of the sum
#pragma unroll
  for (int distance = 1; distance < kWarpThreads; distance *= 2) {
    const int32_t other = __shfl_up_sync(0xffffffffu, before, distance);
    if (lane >= distance) before += other;
  }
  if (lane == kWarpThreads - 1) {
    shared.starts[args.experts] = __ldcg(args.starts + args.experts);
    shared.first_tiles[args.experts] = before;
  }
  before -= own;
  for (int32_t e = from; e < to; ++e) {
    shared.first_tiles[e] = before;
    const int32_t count = __ldcg(args.starts + e + 1) - __ldcg(args.starts + e);
    before += ExpertTiles<Shape>::of(count, args.columns).count();
  }
}

// --- the thread that has W copied ---

template <class Shape, bool kGated>
__device__ void copy_grouped_weights(GroupedShared<Shape>& shared, const CUtensorMap& weight,
                                     const GroupedArguments& args, const GroupedTurn& turn) {
  constexpr uint16_t kAll = (1u << Shape::kBlocks) - 1;
  const int32_t tiles = shared.first_tiles[args.experts];
  RingPlace<Shape::kStages> at;
  for (int32_t index = turn.first; index < tiles; index += turn.step) {
    const GroupedWork work = grouped_work<Shape, kGated>(shared, args, index, turn.rank);
    for (int32_t step = 0; step < args.steps; ++step) {
      shared.empty[at.slot].wait(at.parity ^ 1);  // the first round finds every stage empty
      std::byte* const to = shared.ring[at.slot] + Shape::kXBytes;
      Barrier& full = shared.full[at.slot];
      const int32_t column = step * kWgmmaStep;
      full.arrive_expecting(Shape::kWeightBytes);
      if (Shape::kBlocks == 1 || work.split) {
        copy_box(to, weight, full, column, work.weight_row);
        copy_box(to + Shape::kHalfBytes, weight, full, column, work.weight_row + args.second_half);
      } else {
        copy_box_to_blocks(to + turn.rank * Shape::kHalfBytes, weight, full, kAll, column,
                           work.weight_row + turn.rank * args.second_half);
      }
      at.advance();
    }
  }
}

// --- the warps that copy rows of x ---

template <class Shape, bool kGated>
__device__ void copy_grouped_rows(GroupedShared<Shape>& shared, const GroupedArguments& args,
                                  const GroupedTurn& turn) {
  static_assert(kGroupedRowsApart * 8 == Shape::kRowThreads);
  wait_for_earlier_kernels();  // one of them makes x
  const GroupedRowCopy own =
      grouped_row_copy(static_cast<int>(threadIdx.x) - Shape::kRowWarp * kWarpThreads);
  const int32_t tiles = shared.first_tiles[args.experts];
  RingPlace<Shape::kStages> at;
  for (int32_t index = turn.first; index < tiles; index += turn.step) {
    const GroupedWork work = grouped_work<Shape, kGated>(shared, args, index, turn.rank);
    uint32_t units[Shape::kRowsOfThread];  // where the rows begin, in 16 bytes
    const int32_t listed = work.first + own.row;
    const int32_t count = grouped_rows_of_thread<Shape>(listed, work.last);
#pragma unroll
    for (int i = 0; i < Shape::kRowsOfThread; ++i) {
      if (i >= count) continue;
      const int32_t row = listed + i * kGroupedRowsApart;
      const int32_t from = args.rows == nullptr ? row : args.rows[row];
      units[i] = static_cast<uint32_t>(from * (args.x_stride / 16) + own.unit);
    }
    for (int32_t step = 0; step < args.steps; ++step) {
      shared.empty[at.slot].wait(at.parity ^ 1);
      std::byte* const to = shared.ring[at.slot] + own.place;
      const std::byte* const from = args.x + step * kWgmmaRowBytes;
#pragma unroll
      for (int i = 0; i < Shape::kRowsOfThread; ++i) {
        if (i >= count) continue;
        copy_access(to + i * kGroupedRowsApart * kWgmmaRowBytes, from + uint64_t{units[i]} * 16);
      }
      arrive_after_copies(shared.full[at.slot]);
      at.advance();
    }
  }
}

// --- a warpgroup that multiplies ---

template <class T, class Shape, bool kGated>
class GroupedConsumer {
  using Columns = GroupedColumns<Shape, kGated>;
  static constexpr int kBarrier = 1;  // + group: its own threads; 0 is __syncthreads()

 public:
  __device__ GroupedConsumer(GroupedShared<Shape>& shared, const GroupedArguments& args, int group)
      : shared_(shared), args_(args), group_(group), thread_(static_cast<int>(threadIdx.x) % 128) {}

  __device__ __forceinline__ void run(const GroupedTurn& turn) {
    start_after_earlier_kernels();  // some may still read what y holds
    const int32_t tiles = shared_.first_tiles[args_.experts];
    for (int32_t index = turn.first; index < tiles; index += turn.step) {
      GroupedWork work = grouped_work<Shape, kGated>(shared_, args_, index, turn.rank);
      work.first += group_ * kWgmmaGroupRows;
      if (work.first < work.last) {
        multiply();
        bias_ = args_.bias == nullptr ? nullptr : args_.bias + work.weight_row;
        columns_left_ = args_.n_out - work.column;
        store(work);
      } else {
        pass();
      }
    }
  }

 private:
  __device__ __forceinline__ void multiply() {
    constexpr auto kOperand = wgmma_operand();
    const uint32_t ring = shared_address(shared_.ring);
    int before = -1;
    for (int32_t step = 0; step < args_.steps; ++step) {
      shared_.full[at_.slot].wait(at_.parity);
      fence_async_proxy();  // x came by ordinary copies
      const uint32_t stage = ring + static_cast<uint32_t>(at_.slot * Shape::kStageBytes);
      const uint32_t x = stage + static_cast<uint32_t>(wgmma_x_offset(group_, 0));
      pin(sums_);
      products_fence();
#pragma unroll
      for (int k = 0; k < kWgmmaStep; k += 16) {
        Product<T, Shape::kTile>::shared(sums_, kOperand.at(x + 2 * k),
                                         kOperand.at(stage + Shape::kXBytes + 2 * k),
                                         step > 0 || k > 0);
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

  // None of its rows is there: the ring goes on.
  __device__ __forceinline__ void pass() {
    for (int32_t step = 0; step < args_.steps; ++step) {
      shared_.full[at_.slot].wait(at_.parity);
      release(at_.slot);
      at_.advance();
    }
  }

  // This warp reads no more of a stage: all blocks of the cluster may write their parts of it.
  __device__ __forceinline__ void release(int stage) {
    const int lane = thread_ % kWarpThreads;
    if constexpr (Shape::kBlocks == 1) {
      if (lane == 0) shared_.empty[stage].arrive();
    } else if (lane < Shape::kBlocks) {
      arrive_in_block(shared_.empty[stage], static_cast<uint32_t>(lane));
    }
  }

  __device__ __forceinline__ void store(const GroupedWork& work) {
    std::byte* const box = shared_.out[group_];
#pragma unroll
    for (int first = 0; first < Columns::kOut; first += Columns::kBox) {
      named_sync();  // the box before has been read
      write_box(first, box);
      named_sync();
      store_box_rows(work, first, box);
    }
  }

  __device__ __forceinline__ void write_box(int first, std::byte* to) const {
    const WgmmaSumPlace place = wgmma_sum_place(thread_);
#pragma unroll
    for (int i = 0; i < Columns::kBox / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 value = finished(first / 8 + i, half);
        *reinterpret_cast<uint32_t*>(
            to + swizzled_128(place.row + 8 * half, 2 * (8 * i + place.column))) =
            packed<T>(value.x, value.y);
      }
    }
  }

  // Those of the expert, 16 bytes a thread.
  __device__ __forceinline__ void store_box_rows(const GroupedWork& work, int first,
                                                 const std::byte* box) const {
    constexpr int kUnits = Columns::kBox / 8;  // of a row
    constexpr int kTurns = kWgmmaGroupRows * kUnits / 128;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = turn * 128 + thread_;
      const int row = i / kUnits, unit = i % kUnits;
      const int32_t listed = work.first + row, column = work.column + first + 8 * unit;
      if (listed >= work.last || column >= args_.n_out) continue;
      *reinterpret_cast<uint4*>(args_.y + listed * args_.y_stride + 2 * column) =
          *reinterpret_cast<const uint4*>(box + swizzled_128(row, 16 * unit));
    }
  }

  // Columns 8 j and the next of this thread of a tile of y.
  __device__ __forceinline__ float2 finished(int j, int half) const {
    float2 value = pair(j, half);
    if (bias_ != nullptr) add_bias(value, j, 0);
    if constexpr (!kGated) return value;
    float2 up = pair(j + Shape::kHalfRows / 8, half);
    if (bias_ != nullptr) add_bias(up, j, args_.second_half);
    if (args_.clamped) {
      value = {fmin_nan(value.x), fmin_nan(value.y)};
      up = {ClampedSwish::of_up(up.x), ClampedSwish::of_up(up.y)};
    }
    const float2 gate = gated_pair(args_.gate, value);
    return {gate.x * up.x, gate.y * up.y};
  }
  // Of columns 8 j and the next of the tile, whose rows of W are `second` further. Those behind the
  // expert's, which are not stored, are others' or not there.
  __device__ __forceinline__ void add_bias(float2& value, int j, int32_t second) const {
    const int32_t column = 8 * j + wgmma_sum_place(thread_).column;
    if (column >= columns_left_) return;  // columns of y are even in number
    value.x += bias_[second + column];
    value.y += bias_[second + column + 1];
  }
  // A NaN stays one.
  static __device__ __forceinline__ float fmin_nan(float value) {
    return value > kClampedSwishBound ? kClampedSwishBound : value;
  }
  __device__ __forceinline__ float2 pair(int j, int half) const {
    return {sums_[4 * j + 2 * half], sums_[4 * j + 2 * half + 1]};
  }
  __device__ __forceinline__ void named_sync() const {
    asm volatile("bar.sync %0, 128;" ::"r"(kBarrier + group_) : "memory");
  }

  GroupedShared<Shape>& shared_;
  const GroupedArguments& args_;
  const int group_, thread_;
  RingPlace<Shape::kStages> at_;
  float sums_[Shape::kSums];
  const float* bias_ = nullptr;  // of the tile's first row of W, or null
  int32_t columns_left_ = 0;     // of y, from the tile's first on
};

template <class Shape>
__device__ __forceinline__ GroupedTurn grouped_turn() {
  constexpr int32_t kBlocks = Shape::kBlocks;
  return {.rank = kBlocks > 1 ? static_cast<int32_t>(cluster_rank()) : 0,
          .first = static_cast<int32_t>(blockIdx.x) / kBlocks,
          .step = static_cast<int32_t>(gridDim.x) / kBlocks};
}

template <class T, class Shape, bool kGated>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    linear_grouped(const __grid_constant__ CUtensorMap weight,
                   const __grid_constant__ GroupedArguments args) {
  extern __shared__ std::byte dynamic[];
  // The patterns that the copy engine swizzles start at multiples of 1,024 bytes.
  auto& shared = *reinterpret_cast<GroupedShared<Shape>*>(
      dynamic + (1024 - shared_address(dynamic) % 1024) % 1024);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(weight);
    shared.init_barriers();
  }
  if (!args.starts_are_there) start_after_earlier_kernels();
  if (threadIdx.x < kWarpThreads) list_tiles(shared, args);
  __syncthreads();
  if constexpr (Shape::kBlocks > 1) cluster_sync();  // the other block's barriers are there too
  const GroupedTurn turn = grouped_turn<Shape>();
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    if constexpr (Shape::kGroups > 1) registers_lower<56>();
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    if (threadIdx.x == 0) copy_grouped_weights<Shape, kGated>(shared, weight, args, turn);
    if (warp >= Shape::kRowWarp) copy_grouped_rows<Shape, kGated>(shared, args, turn);
  } else {
    if constexpr (Shape::kGroups > 1) registers_raise<224>();
    GroupedConsumer<T, Shape, kGated>(shared, args, warpgroup - 1).run(turn);
  }
  if constexpr (Shape::kBlocks > 1) {
    __syncwarp();
    cluster_sync();  // nobody leaves while the other block writes or arrives here
  }
}

}  // namespace headrace::gpu
