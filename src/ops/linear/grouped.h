// The kernels of grouped_linear on CUDA: tiles of few rows, whose time is that of reading W; tiles
// of many, whose time is the tensor cores'; `any` for what these do not take.
#pragma once

#include "ops/linear/grouped_linear.h"

namespace headrace {

enum class GroupedTiles {
  kFew,   // 64 rows of the list, 128 rows of W
  kMany,  // clusters of 2 x 128, 256
};
// R rows of a list over `experts`, each of which has `n` rows of W, on so many multiprocessors.
// Where batch invariance is asked for, one kind of tile whatever R is.
struct GroupedProduct {
  int64_t rows, experts, n;
};
GroupedTiles plan_grouped(const GroupedProduct& product, const DeviceTraits& traits);

// 16-bit types, K a multiple of 64, columns of y of 8, rows on 16 bytes, at most 1,024 experts.
bool grouped_tiles_fit(const DeviceTraits& traits, const GroupedLinearArgs& args);
void run_grouped_tiles(OpContext& context, const GroupedLinearArgs& args, GroupedTiles tiles);

// Packed block types of one kind (packed_weight.h), in device memory with the bits of the file; 16
// bits of x, rows on 8 bytes, rows of an expert (gated: half of them) whole 16s. `blocks` reads W
// once for each 8 rows of an expert, an element's order of sums depends on K and the type alone;
// `unpacked`, not for batch invariance, makes matrices of some experts at a time in scratch memory.
bool grouped_blocks_fit(const DeviceTraits& traits, const GroupedLinearArgs& args);
void run_grouped_blocks(OpContext& context, const GroupedLinearArgs& args);
bool grouped_unpacked_fits(const DeviceTraits& traits, const GroupedLinearArgs& args);
void run_grouped_unpacked(OpContext& context, const GroupedLinearArgs& args);
// With more rows an expert, on average, `unpacked` is ahead.
inline constexpr int64_t kGroupedBlocksRowsMax = 24;
// Experts of which `unpacked` makes matrices at a time.
int64_t grouped_unpacked_experts(const LinearWeight& weight, int64_t experts);

// Matrices of x's type.
bool grouped_any_fits(const DeviceTraits& traits, const GroupedLinearArgs& args);
void run_grouped_any(OpContext& context, const GroupedLinearArgs& args);

}  // namespace headrace
