// The kernel of blocks_wide.h. A warp takes a packed group (16 rows of W), whose stages come
// through a ring of its own in shared memory (packed_stage.cuh), and unpacks it in registers; four
// warps are a warpgroup, whose 64 rows of W are one side of wgmma products and rows of x in shared
// memory the other. All warps of a block read the same x. Two more warps ask for x and for W; the
// blocks of a cluster share K, and their sums meet in shared memory.
#pragma once

#include "gpu/cluster.cuh"
#include "ops/linear/blocks.cuh"
#include "ops/linear/blocks_wide.h"
#include "ops/linear/packed_stage.cuh"
#include "ops/linear/wide_product.cuh"
#include "ops/linear/wide_rings.cuh"
#include "ops/linear/wide_rows.cuh"
#include "ops/linear/wide_scales.cuh"

namespace headrace::gpu {

constexpr int kWideThreads = (kBlocksWideWarps + 2) * kWarpThreads;
constexpr int kXStageChunks = kWideStepChunks / 2;         // a stage of x is half a step
constexpr int kWideRows = kBlocksWideWarps * kBlocksRows;  // of W
// Sums of a row of x, when they meet: some floats more than rows, so that columns lie in all banks.
constexpr int kSumsPitch = kWideRows + 4;

template <class T>
struct WideArguments {
  BlocksArguments<T> common;
  const std::byte* x;    // as stage_rows() leaves it
  const float* factors;  // too
  BlocksWideRows rows;
  BlocksWidePlan plan;
};

struct WideBarriers {
  Barrier arrived[kBlocksWideWarps][kWideStagesMax];    // stages of W
  Barrier read[kBlocksWideWarps][kWideStagesMax];       // they have been
  Barrier full[kWideStagesMax], empty[kWideStagesMax];  // stages of x; each warp has read one
};

// Where a block stands among those of its product.
struct WidePlace {
  int32_t rank;  // in the cluster
  int32_t first_group, x_block;
  int32_t first_step, last_step;  // of K

  template <class T>
  static __device__ __forceinline__ WidePlace of(const WideArguments<T>& args) {
    const int32_t splits = args.plan.splits, steps = args.rows.steps;
    const int32_t rank = splits > 1 ? static_cast<int32_t>(cluster_rank()) : 0;
    const int32_t tile = static_cast<int32_t>(blockIdx.x) / splits;
    const int32_t share = (steps + splits - 1) / splits;
    const int32_t first = min(rank * share, steps);
    return {rank, tile / args.rows.x_blocks * kBlocksWideWarps, tile % args.rows.x_blocks, first,
            min(first + share, steps)};
  }
};

// What the ninth warp brings: stages of x, which are halves of steps; the first has the means too.
template <int kTiles>
struct XStages {
  static constexpr int kHalfBytes = kXStageChunks * kChunkBytesOfTile * kTiles;
  static constexpr int kMeansBytes = kMeansBytesOfTile * kTiles;
  static constexpr int kBytes = kHalfBytes + kMeansBytes;

  // By one thread.
  static __device__ __forceinline__ void bring(std::byte* ring, WideBarriers& barriers,
                                               const std::byte* from, int32_t count,
                                               int32_t slots) {
    RingTurn turn;
    for (int32_t i = 0; i < count; ++i) {
      if (i >= slots) barriers.empty[turn.slot].wait(turn.phase ^ 1);
      const uint32_t bytes = i % 2 == 0 ? kBytes : kHalfBytes;
      barriers.full[turn.slot].arrive_expecting(bytes);
      copy_bytes(ring + turn.slot * kBytes, from, bytes, barriers.full[turn.slot]);
      from += bytes;
      turn.next(slots);
    }
  }
};

// A warp's group of W, times the block's rows of x.
template <class T, int kType, int kTiles>
class WideWarp {
  using Stage = PackedStage<kType>;
  using Scales = WideScales<kType, true>;
  using X = XStages<kTiles>;
  static constexpr int kColumns = 8 * kTiles;
  static constexpr int kPartsOfStage = Stage::kChunks / kXStageChunks;  // stages of x

 public:
  __device__ __forceinline__ WideWarp(const WideArguments<T>& args, WideBarriers& barriers,
                                      int warp, std::byte* ring, std::byte* scales)
      : args_(args),
        barriers_(barriers),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads),
        ring_(ring),
        scales_(scales) {}

  __device__ __forceinline__ void multiply(float (&sums)[4 * kTiles], const std::byte* x_ring,
                                           int32_t steps) {
    RingTurn w, x;
    int32_t read = -1;  // the stage of x whose products may still run
#pragma unroll 1
    for (int32_t step = 0; step < steps; ++step) {
      WideMeans<kType> means;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        if (part % kPartsOfStage == 0) {
          barriers_.arrived[warp_][w.slot].wait(w.phase);
          means = Scales::share(reader(w.slot), scales_, lane_);
        }
        const int first = part % kPartsOfStage * kXStageChunks;
        Unpacking next(*this, w.slot, first);
        barriers_.full[x.slot].wait(x.phase);
        const uint32_t at =
            x_operand(shared_address(x_ring) + static_cast<uint32_t>(x.slot * X::kBytes));
        if constexpr (Scales::kMeans) {
          if (part == 0) add_means(sums, means, at + X::kHalfBytes / 16);
        }
        half_step(sums, next, at, read);
        read = x.slot;
        if (part % kPartsOfStage == kPartsOfStage - 1) {
          __syncwarp();
          if (lane_ == 0) barriers_.read[warp_][w.slot].arrive();
          w.next(args_.plan.stages);
        }
        x.next(args_.plan.x_stages);
      }
    }
    products_wait<0>();
    pin(sums);
  }

 private:
  __device__ __forceinline__ StageReader<kType> reader(int32_t slot) const {
    return {ring_ + slot * Stage::kBytes, lane_ / 4, lane_ % 4};
  }

  // What is read of a chunk of W before it is unpacked: one chunk ahead.
  struct Unpacking {
    const WideWarp& warp;
    const StageReader<kType> stage;
    int chunk;
    QuadDwords<kType> quads[2];
    uint4 scales;

    __device__ __forceinline__ Unpacking(const WideWarp& of, int32_t slot, int first)
        : warp(of), stage(of.reader(slot)), chunk(first) {
      read();
    }
    __device__ __forceinline__ void read() {
      stage.quads(quads, chunk);
      scales = Scales::load(warp.scales_, chunk, warp.lane_);
    }
    __device__ __forceinline__ void unpack(uint32_t (&a)[2][4], bool last) {
      Scales::unpack(a, quads, scales, warp.scales_, chunk, warp.lane_);
      if (last) return;
      ++chunk;
      read();
    }
  };

  // kXStageChunks chunks of W by those of x at operand `x`.
  __device__ __forceinline__ void half_step(float (&sums)[4 * kTiles], Unpacking& next, uint32_t x,
                                            int32_t read) const {
    uint32_t a[2][2][4];  // of a chunk that is multiplied and of the one that is unpacked meanwhile
#pragma unroll
    for (int j = 0; j < kXStageChunks; ++j) {
      auto& operand = a[j % 2];
      next.unpack(operand, j + 1 == kXStageChunks);
      products_fence();
      const uint32_t of_chunk = x + static_cast<uint32_t>(j * kChunkBytesOfTile * kTiles / 16);
      WideProduct<kColumns>::add(sums, operand[0], of_chunk);
      WideProduct<kColumns>::add(sums, operand[1], of_chunk + 2 * kCoreBytes * kTiles / 16);
      products_commit();
      products_wait<1>();
      // The stage before this one has been read.
      if (j == 0 && read >= 0 && lane_ == 0) barriers_.empty[read].arrive();
    }
  }

  // Minima times what columns of x mean, both as two numbers of F16.
  static __device__ __forceinline__ void add_means(float (&sums)[4 * kTiles],
                                                   const WideMeans<kType>& means, uint32_t x) {
    const uint32_t most[4] = {means.most[0], means.most[1], means.most[0], means.most[1]};
    const uint32_t rest[4] = {means.rest[0], means.rest[1], means.rest[0], means.rest[1]};
    products_fence();
    WideProduct<kColumns>::add(sums, most, x);
    WideProduct<kColumns>::add(sums, rest, x);
    products_commit();
  }

  const WideArguments<T>& args_;
  WideBarriers& barriers_;
  const int warp_;
  const int lane_;
  std::byte* const ring_;
  std::byte* const scales_;
};

// The blocks that share a product's K, or the threads of one that has it alone.
__device__ __forceinline__ void sync_sharers(int32_t splits) {
  if (splits > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
}

// This block's share of y, from the sums that the blocks of the cluster have left.
template <class T, int kColumns>
__device__ __forceinline__ void add_up_wide(const WideArguments<T>& args, const float* left,
                                            int32_t rank, int32_t first_row, int32_t first_column,
                                            float raised) {
  const BlocksArguments<T>& common = args.common;
  const int32_t splits = args.plan.splits;
  const int32_t items = (kColumns * kWideRows + splits - 1) / splits;  // of this block
  const int32_t last = min((rank + 1) * items, kColumns * kWideRows);
  for (int32_t item = rank * items + static_cast<int32_t>(threadIdx.x); item < last;
       item += static_cast<int32_t>(blockDim.x)) {
    const int32_t column = item / kWideRows, of_block = item % kWideRows;
    if (first_row + of_block >= common.weight.rows || first_column + column >= common.m) continue;
    const float* const own = left + column * kSumsPitch + of_block;
    float sum = 0.0f;
    if (splits == 1) {
      sum = *own;
    } else {
      for (int32_t from = 0; from < splits; ++from) {
        sum += __uint_as_float(load_word_of_cluster(
            address_in_block(shared_address(own), static_cast<uint32_t>(from))));
      }
    }
    sum *= args.factors[first_column + column] / raised;
    if (common.bias != nullptr) sum += common.bias[first_row + of_block];
    common.y.finish(first_column + column, first_row + of_block, sum, common.accumulates);
  }
}

template <class T, int kType, int kTiles>
__global__ void __launch_bounds__(kWideThreads, 2)
    multiply_wide(const __grid_constant__ WideArguments<T> args) {
  using X = XStages<kTiles>;
  constexpr int kColumns = 8 * kTiles;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ WideBarriers barriers;
  let_next_kernel_start();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const WidePlace place = WidePlace::of(args);
  const int32_t steps = place.last_step - place.first_step, x_slots = args.plan.x_stages;
  const int32_t slots = args.plan.stages;
  std::byte* const rings = shared + x_slots * X::kBytes;
  std::byte* const scales = rings + kBlocksWideWarps * slots * PackedStage<kType>::kBytes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  constexpr int kOfX = kBlocksWideWarps, kOfW = kOfX + 1;  // warps
  if (warp == kOfX && lane == 0) {
    init_x_ring(barriers.full, barriers.empty, x_slots, kBlocksWideWarps);
  }
  const auto stages_of = [&](int of) {
    return WStages<kType>{barriers.arrived[of], barriers.read[of],
                          rings + of * slots * PackedStage<kType>::kBytes, slots};
  };
  if (warp == kOfW && lane < kBlocksWideWarps) stages_of(lane).init();
  __syncthreads();
  float sums[4 * kTiles] = {};
  if (warp == kOfW) {
    if (lane < kBlocksWideWarps) {
      // Nobody writes W, so that it is asked for before earlier kernels have ended. Warps past the
      // last group repeat it: their sums are not stored.
      RingTurn turn;
      stages_of(lane).bring(
          args.common.weight.group(min(place.first_group + lane, args.common.groups - 1)),
          args.common.weight.chunks, place.first_step, place.last_step, turn);
    }
    wait_for_earlier_kernels();
  } else {
    wait_for_earlier_kernels();  // in every thread that reads or overwrites what they wrote
    if (warp < kBlocksWideWarps) {
      WideWarp<T, kType, kTiles> own(args, barriers, warp,
                                     rings + warp * slots * PackedStage<kType>::kBytes,
                                     scales + warp * WideScales<kType, true>::kBytes);
      own.multiply(sums, shared, steps);
    } else if (lane == 0) {
      const int64_t first = int64_t{place.x_block} * args.rows.steps + place.first_step;
      X::bring(shared, barriers, args.x + first * (kStepBytesOfTile * kTiles), 2 * steps, x_slots);
    }
  }

  __syncthreads();                                       // the rings are free
  float* const left = reinterpret_cast<float*>(shared);  // [kColumns][kSumsPitch]
  if (warp < kBlocksWideWarps) {
    const int pair = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
    const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // rows 2g and 2g + 1 of the group (packed_stage.cuh)
        *reinterpret_cast<float2*>(left + (8 * t + 2 * quad + i) * kSumsPitch + warp * kBlocksRows +
                                   2 * pair) = {sums[4 * t + i], sums[4 * t + 2 + i]};
      }
    }
  }
  sync_sharers(args.plan.splits);
  add_up_wide<T, kColumns>(args, left, place.rank, place.first_group * kBlocksRows,
                           place.x_block * kColumns, WideScales<kType, true>::kRaised);
  if (args.plan.splits > 1) cluster_sync();  // nobody leaves while others read
}

}  // namespace headrace::gpu
