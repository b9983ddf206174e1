// linear on CUDA for weights that stay F32 beside activations of 16 bits (MatrixStack::exact): a
// router's, where a rounding that swaps two experts is a step. N is small, and so is the matrix.
//   x [M, K] f16 or bf16, W [N, K] f32, y [M, N] f32
#pragma once

#include "ops/linear/linear.h"

namespace headrace {

// K a multiple of 4, rows on 16 bytes. A row's bits do not depend on M.
bool exact_fits(const DeviceTraits& traits, const LinearArgs& args);
void run_exact(OpContext& context, const LinearArgs& args);

// Up to 4 rows of these, where a row's bits may depend on M: a block an element of y's rows.
bool exact_few_fits(const DeviceTraits& traits, const LinearArgs& args);
void run_exact_few(OpContext& context, const LinearArgs& args);

// Everything of these types.
bool exact_any_fits(const DeviceTraits& traits, const LinearArgs& args);
void run_exact_any(OpContext& context, const LinearArgs& args);

}  // namespace headrace
