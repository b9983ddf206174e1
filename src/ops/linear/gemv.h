// linear on CUDA for up to 8 rows and large W, where reading W is nearly all the time there is: W
// streams through shared memory without a wait of one thread for another, and the first of it is on
// its way while the kernel before ends. The norm of x, the gate and the addition to y are part of
// the launch, so that no small kernel stands between two of these.
//
// W is of x's type, or FP8 with a scale a row (LinearWeight::row_scales()): its numbers become x's
// type as they are multiplied, exactly, and sums are scaled.
//
// An element of y is, in f32, p0 + p1 + ... + p15 from the left, where p_i adds up the products of
// steps i, i + 16, ... of 64 columns of K (of 8 bits: 128): whatever stands beside its row of x,
// its bits are the same, but for rows of x that are multiplied in windows (five and more that are
// long).
#pragma once

#include "ops/linear/fused.h"

namespace headrace {

// How W is cut into thread blocks, and what they have in shared memory.
struct GemvPlan {
  int32_t blocks = 0;                     // one a multiprocessor at most; 0: x does not find room
  int32_t tiles = 0;                      // of 8 rows of W, gated: 4 of gate and 4 of up
  int32_t round_tiles = 0;                // of a block, whose sums are added up at a time
  int32_t windows = 0, window_steps = 0;  // of x; steps of a warp
  int32_t ahead = 0;                      // steps of a warp in the ring: kGemvDeep or kGemvShallow
  int32_t shared_bytes = 0;
};
inline constexpr int32_t kGemvDeep = 10, kGemvShallow = 6;
GemvPlan plan_gemv(const FusedProduct& product, int32_t sm_count);

// Up to 8 rows of 16-bit types, K a multiple of 64 and at least 1,024 (of FP8 weights twice that).
// Not where batch invariance is asked for: a row's kernel must not depend on M then.
bool gemv_fits(const DeviceTraits& traits, const FusedLinearArgs& args);
// Whether it is faster in a step than the kernels that stand in for it (measured:
// docs/kernels/notebook/linear.md).
bool gemv_pays(const DeviceTraits& traits, const FusedLinearArgs& args);
void run_gemv(OpContext& context, const FusedLinearArgs& args);

}  // namespace headrace
