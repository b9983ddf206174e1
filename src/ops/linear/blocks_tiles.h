// linear on CUDA whose W is packed block types and x many rows: prompts, and large steps. A block
// unpacks 128 rows of W in registers, rounded to F16, while the tensor cores multiply (wgmma) what
// it has unpacked before by 128 or 256 rows of x, in F16 in shared memory: no W of 16 bits is
// written anywhere.
//   x [M, K] f16 or bf16, rows on 16 bytes;  W [N, K] block types;  y [M, N] of x's type or f32
#pragma once

#include "ops/linear/activated_linear.h"
#include "ops/linear/blocks_wide.h"
#include "ops/linear/norm_linear.h"

namespace headrace {

// As blocks_wide_fit().
bool blocks_tiles_fit(const DeviceTraits& traits, const LinearArgs& args);
// Where it is the choice.
bool blocks_tiles_pay(const DeviceTraits& traits, const LinearArgs& args);
void run_blocks_tiles(OpContext& context, const LinearArgs& args);

// The norm or the gates before such products, in the kernel that makes F16 of rows.
bool norm_blocks_tiles_fit(const DeviceTraits& traits, const NormLinearArgs& args);
void run_norm_blocks_tiles(OpContext& context, const NormLinearArgs& args);
bool norm_gated_blocks_tiles_fit(const DeviceTraits& traits, const NormGatedLinearArgs& args);
void run_norm_gated_blocks_tiles(OpContext& context, const NormGatedLinearArgs& args);
bool activated_blocks_tiles_fit(const DeviceTraits& traits, const ActivatedLinearArgs& args);
void run_activated_blocks_tiles(OpContext& context, const ActivatedLinearArgs& args);

// Rows of x that are taken at a time, so that scratch memory has a bound.
int64_t blocks_tiles_slab(const LinearWeight& weight);
// Rows of x as the kernel reads them, in scratch memory; blocks_plan.cc.
BlocksWideRows blocks_tiles_rows(int64_t m, const LinearWeight& weight, int32_t sm_count);
// Scratch memory for at most m rows.
int64_t blocks_tiles_bytes(int64_t m, const LinearWeight& weight);

// How tiles of a segment of a weight are dealt. The two blocks of a cluster have the same rows of
// x, of which each brings half, and W's rows one after the other; clusters go through such units.
// Where there are few, blocks of a cluster share the K of a tile, each its unit alone.
struct BlocksTilesPlan {
  int32_t units;     // of W, times blocks of x
  int32_t clusters;  // that go through them
  int32_t sharers;   // blocks of a cluster that share rows of x: 1 or 2
  int32_t splits;    // such that share K
  int32_t stages;    // of each warp's ring of W
  int32_t x_stages;  // of the block's ring of x
  int32_t shared_bytes;
};
inline constexpr int32_t kTilesClusterMax = 8;  // blocks
BlocksTilesPlan plan_blocks_tiles(const BlocksWideRows& rows, const LinearWeight::Segment& segment,
                                  int32_t sm_count);

// A unit: which rows of W (kTilesWeightRows for each sharer) and which block of rows of x.
struct BlocksTilesPlace {
  int32_t of_weight, of_x;
};

}  // namespace headrace
