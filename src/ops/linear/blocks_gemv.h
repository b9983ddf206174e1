// linear on CUDA whose W is packed block types and x up to 8 rows, where reading W is the time that
// there is: what `gemv` (gemv.h) is for dense matrices, with the norm of x, the gate and the
// addition to y in the launch as there. W streams through shared memory as it lies and quants are
// multiplied exactly: by one row of x rounded to integers of 16 bits, a scale for each part of K,
// with sums in integers; by more in F16 (of x in BF16 all but what is beyond its range), with sums
// in f32. Sums of parts are scaled in f32.
//   x [M, K] f16 or bf16, rows on 16 bytes;  W [N, K] block types;  y [M, N] of x's type or f32
//
// An element of y adds up what 16 warps have made of its columns, in their order; which columns a
// warp has depends on N, K, the type and the device.
#pragma once

#include "ops/linear/fused.h"

namespace headrace {

inline constexpr int kBlocksGemvWarps = 16;         // of a thread block
inline constexpr int32_t kBlocksGemvRowsMax = 8;    // of x
inline constexpr int32_t kBlocksGemvStagesMax = 5;  // of a warp's ring
// Shared memory of a block before what its plan has: barriers, whole 128 bytes.
inline constexpr int32_t kBlocksGemvBarrierBytes = 1280;

// How a segment of W is cut into thread blocks, and what they have in shared memory;
// blocks_plan.cc.
struct BlocksGemvPlan {
  int32_t blocks = 0;  // one a multiprocessor at most; 0: x does not find room
  // Groups of 16 rows of a block at least, gated: pairs of them; the first blocks have one more.
  int32_t share = 0;
  int32_t blocks_with_more = 0;
  int32_t round_groups = 0;  // whose sums are added up at a time
  int32_t stages = 0;        // of a warp's ring
  int32_t x_stride = 0;      // bytes from row to row of x
  int32_t shared_bytes = 0;
};
BlocksGemvPlan plan_blocks_gemv(const FusedProduct& product, const LinearWeight::Segment& segment,
                                int32_t sm_count);

// sm_90; K whole stages; gated: gate and up of one type, each whole groups; not where batch
// invariance is asked for.
bool blocks_gemv_fits(const DeviceTraits& traits, const FusedLinearArgs& args);
// Where it is the choice: of a product alone, and of one with what stands before or after it.
bool blocks_gemv_pays(const DeviceTraits& traits, const FusedLinearArgs& args);
bool fused_blocks_gemv_pays(const DeviceTraits& traits, const FusedLinearArgs& args);
void run_blocks_gemv(OpContext& context, const FusedLinearArgs& args);

}  // namespace headrace
