// The rings in shared memory through which packed groups of W come to the warps that unpack them
// (blocks_wide.cuh, blocks_tiles.cuh): a ring a warp, so that no warp waits for another's W.
#pragma once

#include "gpu/bulk_copy.cuh"
#include "gpu/ring_place.h"
#include "ops/linear/packed_stage.cuh"
#include "ops/linear/wide_layout.h"

namespace headrace::gpu {

// Barriers of the ring of x that all warps read, by one thread.
__device__ __forceinline__ void init_x_ring(Barrier* full, Barrier* empty, int32_t slots,
                                            int32_t readers) {
  for (int32_t slot = 0; slot < slots; ++slot) {
    full[slot].init(1);
    empty[slot].init(static_cast<uint32_t>(readers));
  }
  fence_barrier_init();
}

// Stages of W of one warp, by one thread.
template <int kType>
struct WStages {
  using Stage = PackedStage<kType>;
  static constexpr int kStagesOfStep = kWideStepChunks / Stage::kChunks;

  Barrier* arrived;  // [slots]
  Barrier* read;     // by the warp
  std::byte* ring;
  int32_t slots;

  __device__ __forceinline__ void init() const {
    for (int32_t slot = 0; slot < slots; ++slot) {
      arrived[slot].init(1);
      read[slot].init(1);
    }
    fence_barrier_init();
  }
  // Steps [first, last) of K. `turn`: where the ring stands.
  __device__ __forceinline__ void bring(const PackedGroup& group, int32_t chunks, int32_t first,
                                        int32_t last, RingTurn& turn) const {
#pragma unroll 1
    for (int32_t i = first * kStagesOfStep; i < last * kStagesOfStep; ++i) {
      read[turn.slot].wait(turn.phase ^ 1);  // the first round finds every slot free
      const int32_t chunk =
          wide_step_first_chunk(i / kStagesOfStep, chunks) + i % kStagesOfStep * Stage::kChunks;
      std::byte* const to = ring + turn.slot * Stage::kBytes;
      arrived[turn.slot].arrive_expecting(Stage::kBytes);
      copy_bytes(to, group.data + int64_t{chunk} * Stage::kOf.quant_bytes, Stage::kQuantBytes,
                 arrived[turn.slot]);
      copy_bytes(to + Stage::kQuantBytes,
                 scales_of_block<kType>(group, chunk * 32 / Stage::kOf.columns), Stage::kScaleBytes,
                 arrived[turn.slot]);
      turn.next(slots);
    }
  }
};

}  // namespace headrace::gpu
