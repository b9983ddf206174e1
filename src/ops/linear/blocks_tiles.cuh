// The kernel of blocks_tiles.h. As in blocks_wide.cuh a warp takes a packed group (16 rows of W)
// from a ring of its own and unpacks it in registers, and four warps are a warpgroup, whose 64 rows
// of W are one side of wgmma products. Here rows of x are so many that products take longer than
// unpacking, which is done while they run; of x two blocks of a cluster bring a half each, to both;
// blocks are persistent, and both rings go on from one tile into the next.
#pragma once

#include "gpu/cluster.cuh"
#include "ops/linear/blocks_tiles.h"
#include "ops/linear/tiles_output.cuh"
#include "ops/linear/tiles_rows.cuh"
#include "ops/linear/wide_product.cuh"
#include "ops/linear/wide_rings.cuh"
#include "ops/linear/wide_scales.cuh"

namespace headrace::gpu {

// Two warpgroups multiply; the third, which brings x and W, leaves them its registers.
constexpr int kTilesThreads = (kBlocksWideWarps + 4) * kWarpThreads;

struct TilesBarriers {
  Barrier arrived[kBlocksWideWarps][kWideStagesMax];  // stages of W
  Barrier read[kBlocksWideWarps][kWideStagesMax];     // they have been
  // Stages of x, a part of each from every sharer; each warp of all sharers has read one.
  Barrier full[kTilesXStagesMax], empty[kTilesXStagesMax];
};

template <int kTiles>
struct TilesX {
  static constexpr int kChunks = kTilesXChunks<kTiles>;  // of 32 columns of K, of a stage
  static constexpr int kBytes = kTilesXStageBytes;
  static constexpr int kStagesOfStep = kWideStepChunks / kChunks;
  static_assert(kChunks * kChunkBytesOfTile * kTiles == kBytes);
};

// Where a block stands in its cluster: which share of K it has, and which of its sharers it is.
struct TilesRank {
  int32_t sharers, split, sharer;

  __device__ __forceinline__ explicit TilesRank(const BlocksTilesPlan& plan)
      : sharers(plan.sharers) {
    const auto rank = static_cast<int32_t>(cluster_rank());
    split = rank / sharers;
    sharer = rank % sharers;
  }
  // Of those that have this one's rows of x, and of those that have its rows of W.
  __device__ __forceinline__ uint32_t of_sharer(int32_t which) const {
    return static_cast<uint32_t>(sharers * split + which);
  }
  __device__ __forceinline__ uint32_t of_split(int32_t which) const {
    return static_cast<uint32_t>(sharers * which + sharer);
  }
  // What this block goes through, one after the other.
  template <class Body>
  __device__ __forceinline__ void each_tile(const TilesArguments& args, const Body& body) const {
#pragma unroll 1
    for (int32_t unit = first_unit(args); unit < args.plan.units; unit += args.plan.clusters) {
      body(share(args, unit));
    }
  }
  __device__ __forceinline__ TilesShare first_share(const TilesArguments& args) const {
    return share(args, first_unit(args));
  }
  // Of K, of all its tiles.
  __device__ __forceinline__ int32_t steps(const TilesArguments& args) const {
    int32_t steps = 0;
    each_tile(args, [&](const TilesShare& share) { steps += share.last_step - share.first_step; });
    return steps;
  }

 private:
  __device__ __forceinline__ int32_t first_unit(const TilesArguments& args) const {
    return static_cast<int32_t>(blockIdx.x) / (sharers * args.plan.splits);
  }
  __device__ __forceinline__ TilesShare share(const TilesArguments& args, int32_t unit) const {
    const BlocksTilesPlace place = tiles_place(unit, args.plan.units, args.rows.x_blocks);
    const int32_t share = (args.rows.steps + args.plan.splits - 1) / args.plan.splits;
    const int32_t first = min(split * share, args.rows.steps);
    return {sharers * place.of_weight + sharer, place.of_x, first,
            min(first + share, args.rows.steps)};
  }
};

// A warp's group of W, times the block's rows of x. While products of a chunk run, the next is
// unpacked, and towards the end of a stage of W the scales of the one behind it are decoded.
template <int kType, int kTiles>
class TilesWarp {
  using Stage = PackedStage<kType>;
  using Scales = WideScales<kType, false>;
  using X = TilesX<kTiles>;
  static constexpr int kColumns = 8 * kTiles;
  static constexpr int kOpens = Stage::kChunks - 2;  // the chunk beside which the next is opened
  static_assert(Stage::kChunks % X::kChunks == 0 && Stage::kChunks % 2 == 0);

 public:
  static constexpr int kScaleBytes = 2 * Scales::kBytes;  // of a warp: of a stage and the next

  // `steps`: of K, of all tiles.
  __device__ __forceinline__ TilesWarp(TilesBarriers& barriers, const TilesRank& rank,
                                       const BlocksTilesPlan& plan, int warp, int32_t steps,
                                       const std::byte* x_ring, const std::byte* ring,
                                       std::byte* scales)
      : barriers_(barriers),
        rank_(rank),
        plan_(plan),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads),
        x_ring_(x_operand(shared_address(x_ring))),
        ring_(ring),
        scales_(scales),
        stages_left_(steps * WStages<kType>::kStagesOfStep) {
    if (stages_left_ == 0) return;
    open(w_, scales_);
    read_chunk(ahead_, reader(w_), scales_, 0);
  }

  __device__ __forceinline__ void multiply(float (&sums)[4 * kTiles], int32_t steps) {
    __syncwarp();  // lanes may have stored the tile before in different ways
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
    int32_t read = -1;  // the stage of x whose products may still run
#pragma unroll 1
    for (int32_t step = 0; step < steps; ++step) {
#pragma unroll
      for (int part = 0; part < WStages<kType>::kStagesOfStep; ++part) multiply_stage(sums, read);
    }
    products_wait<0>();
    pin(sums);
    if (read >= 0) release(read);
  }

 private:
  // What is read of a chunk of W before it is unpacked: one chunk ahead.
  struct Ahead {
    QuadDwords<kType> quads[2];
    uint4 scales;
  };
  __device__ __forceinline__ StageReader<kType> reader(const RingTurn& turn) const {
    return {ring_ + turn.slot * Stage::kBytes, lane_ / 4, lane_ % 4};
  }
  // Waits for a stage of W and decodes its scales.
  __device__ __forceinline__ void open(const RingTurn& turn, std::byte* scales) const {
    barriers_.arrived[warp_][turn.slot].wait(turn.phase);
    Scales::share(reader(turn), scales, lane_);
  }
  __device__ __forceinline__ void read_chunk(Ahead& ahead, const StageReader<kType>& stage,
                                             const std::byte* scales, int chunk) const {
    stage.quads(ahead.quads, chunk);
    ahead.scales = Scales::load(scales, chunk, lane_);
  }

  // A stage of W, which is open, by as many chunks of x. `read`: the stage of x before.
  __device__ __forceinline__ void multiply_stage(float (&sums)[4 * kTiles], int32_t& read) {
    const StageReader<kType> stage = reader(w_);
    std::byte* const scales = scales_ + half_ * Scales::kBytes;
    std::byte* const next_scales = scales_ + (half_ ^ 1) * Scales::kBytes;
    RingTurn next = w_;
    next.next(plan_.stages);
    const bool has_next = --stages_left_ > 0;
    uint32_t a[2][2][4];  // of a chunk that is multiplied and of the one that is unpacked meanwhile
    uint32_t x = 0;
#pragma unroll
    for (int chunk = 0; chunk < Stage::kChunks; ++chunk) {
      auto& operand = a[chunk % 2];
      Scales::unpack(operand, ahead_.quads, ahead_.scales, scales, chunk, lane_);
      if (chunk + 1 < Stage::kChunks) {
        read_chunk(ahead_, stage, scales, chunk + 1);
      } else if (has_next) {
        read_chunk(ahead_, reader(next), next_scales, 0);
      }
      const bool first = chunk % X::kChunks == 0;  // of a stage of x
      if (first) {
        barriers_.full[x_.slot].wait(x_.phase);
        x = x_ring_ + static_cast<uint32_t>(x_.slot * (X::kBytes / 16));
      }
      products_fence();
      const uint32_t of_chunk =
          x + static_cast<uint32_t>(chunk % X::kChunks * kChunkBytesOfTile * kTiles / 16);
      WideProduct<kColumns>::add(sums, operand[0], of_chunk);
      WideProduct<kColumns>::add(sums, operand[1], of_chunk + 2 * kCoreBytes * kTiles / 16);
      products_commit();
      if (chunk == kOpens && has_next) open(next, next_scales);
      products_wait<1>();
      if (!first) continue;
      if (read >= 0) release(read);  // the stage before this one has been read
      read = x_.slot;
      x_.next(plan_.x_stages);
    }
    __syncwarp();
    if (lane_ == 0) barriers_.read[warp_][w_.slot].arrive();
    w_ = next;
    half_ ^= 1;
  }

  // Every sharer may write its part of a stage of x, here and there.
  __device__ __forceinline__ void release(int32_t stage) const {
    if (lane_ < rank_.sharers) arrive_in_block(barriers_.empty[stage], rank_.of_sharer(lane_));
  }

  TilesBarriers& barriers_;
  const TilesRank& rank_;
  const BlocksTilesPlan& plan_;
  const int warp_;
  const int lane_;
  const uint32_t x_ring_;
  const std::byte* const ring_;
  std::byte* const scales_;
  int32_t stages_left_;  // of W
  int half_ = 0;         // of `scales_`: that of the stage that is open
  RingTurn w_, x_;
  Ahead ahead_;
};

// Stages of x: this block's part of each, to all sharers. By one thread.
template <int kTiles>
__device__ __forceinline__ void bring_x(TilesBarriers& barriers, const TilesArguments& args,
                                        const TilesRank& rank, const TilesShare& share,
                                        std::byte* ring, RingTurn& turn) {
  using X = TilesX<kTiles>;
  const int32_t part = X::kBytes / rank.sharers;
  const auto blocks = static_cast<uint16_t>(((1u << rank.sharers) - 1) << rank.of_sharer(0));
  const int32_t first = share.first_step * X::kStagesOfStep;
  const int32_t last = share.last_step * X::kStagesOfStep;
  const std::byte* const x =
      args.x + int64_t{share.x_block} * args.rows.steps * tiles_step_bytes(kTiles);
#pragma unroll 1
  for (int32_t i = first; i < last; ++i) {
    barriers.empty[turn.slot].wait(turn.phase ^ 1);  // the first round finds every slot free
    barriers.full[turn.slot].arrive_expecting(X::kBytes);
    copy_bytes_to_blocks(ring + turn.slot * X::kBytes + rank.sharer * part,
                         x + int64_t{i} * X::kBytes + rank.sharer * part, part,
                         barriers.full[turn.slot], blocks);
    turn.next(args.plan.x_stages);
  }
}

// By the warps that multiply: a cluster has one tile, whose sums meet where the rings were, when
// all warps are done with them. `left`: [8 kTiles][kTilesPitch].
template <int kTiles>
__device__ __forceinline__ void finish_split_tile(const TilesArguments& args, const TilesRank& rank,
                                                  const TilesShare& share,
                                                  const float (&sums)[4 * kTiles], int warp,
                                                  float* left) {
  named_sync(kTilesMeet, kTilesWorkers);
  leave_tile<kTiles>(sums, warp, left);
  cluster_sync();
  const auto block_of = [&](int32_t split) { return rank.of_split(split); };
  with_output(args.y, [&]<class T, bool kAccumulates>() {
    store_shared_tile<T, kAccumulates, kTiles>(args, share, rank.split, left, block_of);
  });
}

static_assert(sizeof(TilesBarriers) + sizeof(TilesFactors<32>) <= kTilesStaticBytes);

template <int kType, int kTiles>
__global__ void __launch_bounds__(kTilesThreads, 1)
    multiply_tiles(const __grid_constant__ TilesArguments args) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ TilesBarriers barriers;
  __shared__ TilesFactors<kTiles> factors;
  using Warp = TilesWarp<kType, kTiles>;
  let_next_kernel_start();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int32_t slots = args.plan.stages, x_slots = args.plan.x_stages;
  constexpr int kOfX = kBlocksWideWarps, kOfW = kOfX + 1;  // warps
  const TilesRank rank(args.plan);
  std::byte* const rings = shared + x_slots * TilesX<kTiles>::kBytes;
  std::byte* const scales = rings + kBlocksWideWarps * slots * PackedStage<kType>::kBytes;
  const auto ring_of = [&](int of) { return rings + of * slots * PackedStage<kType>::kBytes; };
  const auto stages_of = [&](int of) {
    return WStages<kType>{barriers.arrived[of], barriers.read[of], ring_of(of), slots};
  };
  if (warp == kOfX && lane == 0) {
    init_x_ring(barriers.full, barriers.empty, x_slots, rank.sharers * kBlocksWideWarps);
  }
  if (warp == kOfW && lane < kBlocksWideWarps) stages_of(lane).init();
  __syncthreads();
  cluster_sync();  // the other blocks' barriers are there too

  if (warp >= kBlocksWideWarps) {
    registers_lower<56>();
    if (warp == kOfW && lane < kBlocksWideWarps) {
      // Nobody writes W, so that it is asked for before earlier kernels have ended. Warps past the
      // last group repeat it: their sums are not stored.
      RingTurn turn;
      rank.each_tile(args, [&](const TilesShare& share) {
        stages_of(lane).bring(
            args.weight.group(min(kBlocksWideWarps * share.tile + lane, args.groups - 1)),
            args.weight.chunks, share.first_step, share.last_step, turn);
      });
    }
    __syncwarp();
    wait_for_earlier_kernels();  // in every thread that reads or overwrites what they wrote
    if (warp == kOfX && lane == 0) {
      RingTurn turn;
      rank.each_tile(args, [&](const TilesShare& share) {
        bring_x<kTiles>(barriers, args, rank, share, shared, turn);
      });
    }
    __syncwarp();
    if (args.plan.splits > 1) cluster_sync();  // as in finish_split_tile()
  } else {
    registers_raise<224>();
    wait_for_earlier_kernels();
    Warp own(barriers, rank, args.plan, warp, rank.steps(args), shared, ring_of(warp),
             scales + warp * Warp::kScaleBytes);
    float sums[4 * kTiles];
    GroupFactors<kTiles> of_tile(factors, warp / 4);
    rank.each_tile(args, [&](const TilesShare& share) {
      of_tile.ask(args, share);
      own.multiply(sums, share.last_step - share.first_step);
      if (args.plan.splits > 1) return;
      with_output(args.y, [&]<class T, bool kAccumulates>() {
        store_tile<T, kAccumulates, kTiles>(args, share, sums, warp, of_tile.shared());
      });
    });
    if (args.plan.splits > 1) {
      finish_split_tile<kTiles>(args, rank, rank.first_share(args), sums, warp,
                                reinterpret_cast<float*>(shared));
    }
  }
  cluster_sync();  // nobody leaves while others write, read or arrive here
}

}  // namespace headrace::gpu
