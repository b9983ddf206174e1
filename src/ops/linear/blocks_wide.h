// linear on CUDA whose W is packed block types and x some dozens of rows: a block unpacks 128 rows
// of W in registers as it reads them, rounded to x's type, and multiplies them by rows of x that
// the copy engine brings to shared memory.
//   x [M, K] f16 or bf16, rows on 16 bytes;  W [N, K] block types;  y [M, N] of x's type or f32
#pragma once

#include "ops/linear/linear.h"

namespace headrace {

// sm_90; not where batch invariance is asked for.
bool blocks_wide_fit(const DeviceTraits& traits, const LinearArgs& args);
// Where it is the choice.
bool blocks_wide_pay(const DeviceTraits& traits, const LinearArgs& args);
void run_blocks_wide(OpContext& context, const LinearArgs& args);

// How a segment of a weight is cut; blocks_plan.cc.
struct BlocksWidePlan {
  int tiles;           // of 8 rows of x, of a block: 2, 4 or 8
  int32_t x_blocks;    // that all rows of x take
  int32_t row_blocks;  // of 8 groups of W
  int32_t splits;      // blocks of a cluster that share K: 1, 2, 4 or 8
};
BlocksWidePlan plan_blocks_wide(int64_t m, int64_t groups, int64_t chunks, int32_t sm_count);

}  // namespace headrace
