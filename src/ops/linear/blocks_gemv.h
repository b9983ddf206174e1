// linear on CUDA whose W is packed block types and x up to 8 rows, where reading W is the time that
// there is: what `gemv` (gemv.h) is for dense matrices. W streams through shared memory as it lies;
// quants and x are multiplied in F16, which holds quants exactly (of x in BF16 all but what is
// beyond its range), sums of parts are scaled in f32.
//   x [M, K] f16 or bf16, rows on 16 bytes;  W [N, K] block types;  y [M, N] of x's type or f32
//
// An element of y adds up what 16 warps have made of its columns, in their order; which columns a
// warp has depends on N, K, the type and the device.
#pragma once

#include "ops/linear/linear.h"

namespace headrace {

inline constexpr int kBlocksGemvWarps = 16;         // of a thread block
inline constexpr int32_t kBlocksGemvRowsMax = 8;    // of x
inline constexpr int32_t kBlocksGemvStagesMax = 5;  // of a warp's ring

// How a segment of W is cut into thread blocks, and what they have in shared memory;
// blocks_plan.cc.
struct BlocksGemvPlan {
  int32_t blocks = 0;  // one a multiprocessor at most; 0: x does not find room
  int32_t share = 0;   // groups of 16 rows of a block at least; the first have one more
  int32_t blocks_with_more = 0;
  int32_t round_groups = 0;  // whose sums are added up at a time
  int32_t stages = 0;        // of a warp's ring
  int32_t x_stride = 0;      // bytes from row to row of x
  int32_t shared_bytes = 0;
};
BlocksGemvPlan plan_blocks_gemv(int64_t m, int64_t k, const LinearWeight::Segment& segment,
                                int32_t sm_count);

// sm_90; K whole stages; not where batch invariance is asked for.
bool blocks_gemv_fits(const DeviceTraits& traits, const LinearArgs& args);
// Where it is the choice.
bool blocks_gemv_pays(const DeviceTraits& traits, const LinearArgs& args);
void run_blocks_gemv(OpContext& context, const LinearArgs& args);

}  // namespace headrace
