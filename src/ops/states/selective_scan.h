// The selective scan of Mamba (Gu and Dao, 2023), and the gate behind it: each channel has a state
// s [N], whose components forget each by a factor of its own:
//   dt_t = softplus(dt_t + dt_bias)
//   s_n := exp(rate_n dt_t) s_n + dt_t B_n x_t;   y_t = (sum over n of C_n s_n + skip x_t)
//   silu(z_t)
// B and C are of a row, all others of a channel, too. Sums over n are in ascending order, whatever
// the instruction set.
#pragma once

#include "ops/op.h"
#include "ops/states/state_view.h"

namespace headrace {

struct SelectiveScanArgs {
  int32_t state_dim = 0;  // N
  ConstTensorView x;      // [T, C], of the activation type
  ConstTensorView z;      // [T, C] of x's type
  ConstTensorView dt;     // [T, C] f32
  ConstTensorView b;      // [T, N] f32
  ConstTensorView c;      // [T, N] f32
  const float* rate;      // [N, C], negative
  const float* dt_bias;   // [C]
  const float* skip;      // [C]
  // f32, in blocks of kScanColumns channels (the last may be narrower): [N, channels], dense.
  StateView states;
  TensorView out;  // [T, C] of x's type; may be x. A CPU does not write rows of no sequence.
};

inline constexpr int64_t kScanColumns = 32;

constexpr int64_t selective_scan_state_bytes(int32_t state_dim, int64_t channels) {
  return state_dim * channels * static_cast<int64_t>(sizeof(float));
}

void selective_scan(OpContext& context, const SelectiveScanArgs& args);

OpCost op_cost(const SelectiveScanArgs& args);
const KernelSet<SelectiveScanArgs>& selective_scan_kernels();
KernelTable<SelectiveScanArgs> selective_scan_cpu_kernels();
KernelTable<SelectiveScanArgs> selective_scan_cuda_kernels();

}  // namespace headrace
