// The selective scan of Mamba-2 (state space duality; Dao and Gu, 2024): each head has a state S
// [P, N] that forgets by one factor a row and takes in the row's x along its B:
//   dt_t = min(max(softplus(dt_scale dt_t + dt_bias), dt_min), dt_max)   (of each head)
//   S   := exp(rate dt_t) S + (dt_t x_t) B_t';   y_t = S C_t + skip x_t
// Heads that are neighbours share B and C: those of a group.
//
// A row's sum over N is of two sums, of the even and of the odd components, each in ascending
// order, whatever the instruction set.
#pragma once

#include <limits>

#include "ops/op.h"
#include "ops/states/state_view.h"

namespace headrace {

struct SsdHeads {
  int32_t heads = 0;      // a multiple of groups
  int32_t head_dim = 0;   // P
  int32_t groups = 0;     // that share B and C
  int32_t state_dim = 0;  // N

  int64_t values() const { return int64_t{heads} * head_dim; }
  int64_t keys() const { return int64_t{groups} * state_dim; }
  int64_t xbc() const { return values() + 2 * keys(); }
  int64_t state_bytes() const { return values() * state_dim * static_cast<int64_t>(sizeof(float)); }
  friend bool operator==(const SsdHeads&, const SsdHeads&) = default;
};

// What becomes of dt before it is used.
struct TimeStepRule {
  float scale = 1.0f;
  float min = 0.0f;
  float max = std::numeric_limits<float>::infinity();

  // Every time step is `min`, and dt is not read.
  constexpr bool is_constant() const { return min == max; }
  friend bool operator==(const TimeStepRule&, const TimeStepRule&) = default;
};

struct SsdScanArgs {
  SsdHeads heads;
  ConstTensorView xbc;  // [T, heads.xbc()] of the activation type: x, B, C
  TensorView dt;        // [T, 2 heads] f32: dt, and room for a CPU's factors; a CPU changes dt, too
  const float* rate;    // [heads], negative
  const float* dt_bias;  // [heads]
  const float* skip;     // [heads]
  TimeStepRule time_step;
  // f32, by head, in blocks of kSsdColumns of its P (the last may be narrower): [N, columns],
  // dense.
  StateView states;
  // [T, heads.values()] of xbc's type; may be x. A CPU does not write rows of no sequence.
  TensorView out;
};

inline constexpr int64_t kSsdColumns = 32;

void ssd_scan(OpContext& context, const SsdScanArgs& args);

OpCost op_cost(const SsdScanArgs& args);
const KernelSet<SsdScanArgs>& ssd_scan_kernels();
KernelTable<SsdScanArgs> ssd_scan_cpu_kernels();
KernelTable<SsdScanArgs> ssd_scan_cuda_kernels();

}  // namespace headrace
