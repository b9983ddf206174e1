// The kernels of linear on CUDA whose W is FP8 (LinearWeight::row_scales()):
//   x [M, K] f16 or bf16;  W [N, K] e4m3 and a scale a row;  y [M, N] of x's type or f32
//
// `gemv` (gemv.h) multiplies up to 4 rows of x as they are. More become e4m3, too, each with a
// scale of its own, its largest magnitude / 448 (1 where that is below 2^-100), and products are of
// FP8: `stream` (stream.h) and the vendor's library. `any` multiplies x as it is: odd shapes, and
// what tests compare with.
#pragma once

#include "ops/linear/activated_linear.h"
#include "ops/linear/norm_linear.h"

namespace headrace {

// Whether W is FP8, on a GPU, and x and y are of types that its kernels take.
bool float8_types(const DeviceTraits& traits, const LinearArgs& args);

// Rows of x as FP8, in memory of float8_rows_bytes().
struct Float8Rows {
  ConstTensorView numbers;  // [M, K] of kF8, dense
  const float* scales;      // [M]
};
int64_t float8_rows_bytes(int64_t m, int64_t k);
// Start the kernel that makes them, of x, of what rms_norm makes of norm.x or of act(gate) * up,
// rounded to x's type first (`out` is not written). `memory` on 256 bytes. REQUIRES: f16 or bf16,
// rows on 16 bytes, K whole 16s
Float8Rows make_float8_rows(OpContext& context, const ConstTensorView& x, std::byte* memory);
Float8Rows make_float8_rows(OpContext& context, const RmsNormArgs& norm, std::byte* memory);
Float8Rows make_float8_rows(OpContext& context, const GatedActivationArgs& gates,
                            std::byte* memory);

// To so many rows `stream` is ahead of the library; with batch invariance it is the only one.
inline constexpr int64_t kFloat8StreamedRowsMax = 64;
bool float8_streams(const DeviceTraits& traits, int64_t rows);

// Rows on 16 bytes, a library that scales rows; not where batch invariance is asked for.
bool float8_library_fits(const DeviceTraits& traits, const LinearArgs& args);
void run_float8_library(OpContext& context, const LinearArgs& args);

// The norm before a product, whose rows become FP8 at once.
bool norm_float8_fits(const DeviceTraits& traits, const NormLinearArgs& args);
void run_norm_float8(OpContext& context, const NormLinearArgs& args);
bool norm_gated_float8_fits(const DeviceTraits& traits, const NormGatedLinearArgs& args);
void run_norm_gated_float8(OpContext& context, const NormGatedLinearArgs& args);

// The gates before a product, in the same way.
bool activated_float8_fits(const DeviceTraits& traits, const ActivatedLinearArgs& args);
void run_activated_float8(OpContext& context, const ActivatedLinearArgs& args);

// Scratch memory of all of these.
int64_t float8_workspace_bytes(int64_t m, const LinearWeight& weight);

}  // namespace headrace
