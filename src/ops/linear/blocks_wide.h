// linear on CUDA whose W is packed block types and x some dozens of rows: a block unpacks 128 rows
// of W in registers as it reads them, rounded to F16, and multiplies them (wgmma) by rows of x in
// F16 that the copy engine brings to shared memory.
//   x [M, K] f16 or bf16, rows on 16 bytes;  W [N, K] block types;  y [M, N] of x's type or f32
#pragma once

#include "ops/linear/linear.h"

namespace headrace {

// sm_90; not where batch invariance is asked for.
bool blocks_wide_fit(const DeviceTraits& traits, const LinearArgs& args);
// Where it is the choice.
bool blocks_wide_pay(const DeviceTraits& traits, const LinearArgs& args);
void run_blocks_wide(OpContext& context, const LinearArgs& args);

// Rows of x as the kernel reads them, in scratch memory; blocks_plan.cc.
struct BlocksWideRows {
  int32_t tiles;     // of 8 rows, of a block: 2, 4 or 8
  int32_t x_blocks;  // that all rows take
  int32_t chunks;    // of 32 columns: those of K, and zeros up to whole steps
  int64_t bytes;
};
BlocksWideRows blocks_wide_rows(int64_t m, const LinearWeight& weight);
// Scratch memory for at most m rows.
int64_t blocks_wide_bytes(int64_t m, const LinearWeight& weight);

// How a segment of a weight is cut.
struct BlocksWidePlan {
  int32_t blocks;  // of 8 groups of W and a block of x
  int32_t splits;  // blocks of a cluster that share K: 1, 2, 4 or 8
};
BlocksWidePlan plan_blocks_wide(const BlocksWideRows& rows, int64_t groups, int32_t sm_count);

// With more rows of x `unpacked` is ahead.
inline constexpr int64_t kBlocksWideRowsMax = 128;

}  // namespace headrace
