// linear on CUDA for small models at few rows, where a launch takes longer than its bytes: a thread
// block has all columns of its rows of x and of W in shared memory, so that W is on its way before
// the kernels before this one have ended, the norm of x and the gate or the addition after the
// product cost no launch of their own, and one barrier stands where a ring of steps has many.
//
// An element of y is, in f32, p0 + p1 + ... + p7 from the left, where p_i adds up the products of
// steps i, i + 8, ... of 16 columns of K: its bits depend on its row of x and its row of W alone,
// whatever tile it is in and whatever stands beside it. Rows with a norm are rounded as rms_norm
// rounds them.
#pragma once

#include "ops/linear/fused.h"

namespace headrace {

// How y is cut into thread blocks. All of it may depend on M: no bit does.
struct ResidentPlan {
  int32_t tile_rows = 0;     // of x; 0: no tile fits into shared memory
  int32_t tile_columns = 0;  // rows of W; of a gated tile half gate, half up
  int32_t row_tiles = 0;
  int32_t column_tiles = 0;
  int32_t shared_bytes = 0;
};
ResidentPlan plan_resident(const FusedProduct& product, int32_t sm_count);

// Up to 256 rows, any number where batch invariance is asked for; 16-bit types of one kind, with a
// norm BF16; K a multiple of 16.
bool resident_fits(const DeviceTraits& traits, const FusedLinearArgs& args);
// Whether it is faster in a step than the kernels that stand in for it: small weights, up to 64
// rows (measured: docs/kernels/notebook/linear.md). Not where batch invariance is asked for: a
// row's kernel must not depend on M then.
bool resident_pays(const DeviceTraits& traits, const FusedLinearArgs& args);
void run_resident(OpContext& context, const FusedLinearArgs& args);

}  // namespace headrace
