// The angles of rotary position embedding: once a step for each table of frequencies, shared by the
// layers that use it.
#pragma once

#include <span>

#include "ops/op.h"

namespace headrace {

struct RopeAnglesArgs {
  std::span<const int32_t> positions;  // [T], in device memory
  std::span<const double> inv_freq;    // [rope_dim / 2], in device memory; may be empty
  float scale = 1.0f;                  // of cos and sin (yarn's and longrope's attention factor)
  TensorView cos;                      // [T, rope_dim / 2] f32
  TensorView sin;                      // [T, rope_dim / 2] f32
};

// cos and sin of positions[t] * inv_freq[i], times scale: in double, rounded once to f32.
void rope_angles(OpContext& context, const RopeAnglesArgs& args);

OpCost op_cost(const RopeAnglesArgs& args);
const KernelSet<RopeAnglesArgs>& rope_angles_kernels();
KernelTable<RopeAnglesArgs> rope_angles_cpu_kernels();
KernelTable<RopeAnglesArgs> rope_angles_cuda_kernels();

}  // namespace headrace
