// The kernels of linear on CUDA that serve no other op: `few_rows` of our own for small models, the
// vendor's library, and `any` for shapes whose rows are not aligned.
//   x [M, K], W [N, K] of one type: f32, f16 or bf16;  y [M, N] of that type or f32;  bias [N] f32
//   sums in f32, rounded once
#pragma once

#include "ops/linear/linear.h"

namespace headrace {

// Up to 8 rows of 16-bit types, K a multiple of 32, small weights (few_rows.cuh). Not where batch
// invariance is asked for.
bool few_rows_pays(const DeviceTraits& traits, const LinearArgs& args);
void run_few_rows(OpContext& context, const LinearArgs& args);

// Rows on 16 bytes; not where batch invariance is asked for.
bool linear_library_fits(const DeviceTraits& traits, const LinearArgs& args);
void run_linear_library(OpContext& context, const LinearArgs& args);
// y += bias [N], which the library does not add. Nothing where there is none.
void add_bias_rows(OpContext& context, const TensorView& y, const float* bias);

// Everything, FP8 weights (float8.h) too.
bool linear_any_fits(const DeviceTraits& traits, const LinearArgs& args);
void run_linear_any(OpContext& context, const LinearArgs& args);

}  // namespace headrace
