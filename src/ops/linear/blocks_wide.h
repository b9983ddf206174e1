// linear on CUDA whose W is packed block types and x some dozens of rows: a block unpacks 128 rows
// of W from shared memory in registers, rounded to F16, and multiplies them (wgmma) by rows of x in
// F16, which are in shared memory too. The copy engine brings both.
//   x [M, K] f16 or bf16, rows on 16 bytes;  W [N, K] block types;  y [M, N] of x's type or f32
#pragma once

#include "ops/linear/activated_linear.h"
#include "ops/linear/norm_linear.h"

namespace headrace {

// sm_90, K of 256 and more; not where batch invariance is asked for.
bool blocks_wide_fit(const DeviceTraits& traits, const LinearArgs& args);
// Where it is the choice.
bool blocks_wide_pay(const DeviceTraits& traits, const LinearArgs& args);
void run_blocks_wide(OpContext& context, const LinearArgs& args);
// With the norm before it or the gates, where it is the choice: rows become F16 where they are
// normalised or gates are applied.
bool norm_blocks_wide_fit(const DeviceTraits& traits, const NormLinearArgs& args);
void run_norm_blocks_wide(OpContext& context, const NormLinearArgs& args);
bool norm_gated_blocks_wide_fit(const DeviceTraits& traits, const NormGatedLinearArgs& args);
void run_norm_gated_blocks_wide(OpContext& context, const NormGatedLinearArgs& args);
bool activated_blocks_wide_fit(const DeviceTraits& traits, const ActivatedLinearArgs& args);
void run_activated_blocks_wide(OpContext& context, const ActivatedLinearArgs& args);

inline constexpr int kBlocksWideWarps = 8;       // of a block that multiply, a group of W each
inline constexpr int32_t kWideStepChunks = 8;    // of 32 columns, of a step of K
inline constexpr int32_t kWideStepBytes = 4352;  // of a step of 8 rows of x (wide_rows.cuh)

// Rows of x as the kernel reads them, in scratch memory; blocks_plan.cc.
struct BlocksWideRows {
  int32_t tiles;     // of 8 rows, of a block: 2, 4 or 8, of `blocks_tiles` 16 or 32
  int32_t x_blocks;  // that all rows take
  int32_t steps;     // of K
  int64_t bytes;
};
BlocksWideRows blocks_wide_rows(int64_t m, const LinearWeight& weight);
// Scratch memory for at most m rows.
int64_t blocks_wide_bytes(int64_t m, const LinearWeight& weight);

// How a segment of a weight is cut, and what its blocks have in shared memory.
struct BlocksWidePlan {
  int32_t blocks;    // of 8 groups of W and a block of x
  int32_t splits;    // blocks of a cluster that share K
  int32_t stages;    // of each warp's ring of W
  int32_t x_stages;  // of the block's ring of x
  int32_t shared_bytes;
};
inline constexpr int32_t kWideStagesMax = 4;  // of either ring
BlocksWidePlan plan_blocks_wide(const BlocksWideRows& rows, const LinearWeight::Segment& segment,
                                int32_t sm_count);

// With more rows of x `blocks_tiles` is ahead.
inline constexpr int64_t kBlocksWideRowsMax = 64;

}  // namespace headrace
