// The kernels of linear on CUDA whose W is packed block types (packed_weight.h), in device memory
// with the bits of the file.
//   x [M, K] f16 or bf16;  W [N, K] block types;  y [M, N] of x's type or f32
// Rows of x that do not lie on 8 bytes are taken too, with any number of rows and batch invariance
// or without: `blocks` and `unpacked` have no faster kernel's wishes of them.
//
// `blocks` multiplies quants, which x's type holds exactly, and scales a part's sum in f32: no
// weight is rounded. With batch invariance an element's order of arithmetic depends on N, K and the
// type alone.
// `unpacked` makes W an ordinary matrix of x's type in scratch memory, some rows at a time, each of
// which the vendor's library multiplies: for many rows of x.
#pragma once

#include "ops/linear/linear.h"

namespace headrace {

bool blocks_fit(const DeviceTraits& traits, const LinearArgs& args);
// Where it is the choice: few rows of x, or batch invariance.
bool blocks_pay(const DeviceTraits& traits, const LinearArgs& args);
void run_blocks(OpContext& context, const LinearArgs& args);

// Not where batch invariance is asked for.
bool unpacked_fits(const DeviceTraits& traits, const LinearArgs& args);
void run_unpacked(OpContext& context, const LinearArgs& args);

// Rows [first, first + out.rows()) of the weight, which are whole groups but for its last and of
// one segment, as a matrix of a 16-bit type.
void unpack_block_rows(OpContext& context, const LinearWeight& weight, int64_t first,
                       const TensorView& out);

// With more rows of x `blocks_wide` and `unpacked` are ahead (docs/kernels/notebook/linear.md).
inline constexpr int64_t kBlocksRowsMax = 32;
// Rows of x that `blocks` takes at a time.
inline constexpr int64_t kBlocksSlabRows = 128;

// Rows of W that are unpacked at a time, and the scratch memory that they take; blocks_plan.cc.
int64_t unpacked_rows(const LinearWeight& weight);
int64_t unpacked_bytes(const LinearWeight& weight);
// Scratch memory that `blocks` takes for m rows of x: whole units of rows, and sums of each 8 rows
// and 32 columns.
inline constexpr int64_t kArrangedRows = 16, kArrangedSumBytes = 96;
int64_t arranged_bytes(int64_t m, const LinearWeight& weight);

// Chunks of 32 columns of a stage of a group in shared memory, what a warp multiplies at a time:
// whole blocks of every type.
constexpr int packed_stage_chunks(int low_bits) { return low_bits == 8 ? 4 : 8; }

}  // namespace headrace
