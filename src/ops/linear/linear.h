// linear: y = x W^T (+ bias) (+ y), the one home of weight formats.
//
// On CUDA x, W and y are of the model's activation type (y may be f32), sums are in f32 and the
// result is rounded once. On the CPU every output element has one order of arithmetic, whatever M
// is, however rows are grouped and whichever thread or instruction set (but for AMX) computes it,
// so that batches never change a bit (again but for AMX, see block types):
//   F32, F16           acc = fma(w[k], x[k], acc), k ascending, in f32
//   BF16               x is rounded to BF16; pairs of columns ascending, the odd column first:
//                        acc = fma(w[k + 1], x[k + 1], acc), acc = fma(w[k], x[k], acc)
//                      With AMX, 32 columns at a time:
//                        even = fma(w[k], x[k], even) and odd likewise, from 0 on
//                        acc = acc + (even + odd)
//   block types        the row of x is quantised per block of 32 columns:
//                        d = amax / 127, q = round(x / d)
//                      or, where amax is over 1.6 times the root mean square of the row's amax, and
//                      in all blocks of LinearCompute::kFastWide, to 16 bits:
//                        d = amax / 32512
//                      and, part after part (the 16 or 32 columns that share a scale s_w and a
//                      minimum m_w, tensor/block_quants.h; integers exact):
//                        acc = fma(s_w d, sum(q_w q), acc)
//                        acc = fma(m_w, d sum(q), acc)     types with minima
//                      With AMX, 17 rows and more are multiplied as BF16 above, by weights rounded
//                      to BF16: where DeviceTraits::batch_invariant does not forbid that a row's
//                      bits depend on how many there are, and compute() is not kFastWide.
// then acc + bias, then y + that. A block of x with a NaN, infinity or 2^110 makes its row NaN.
// docs/decisions/0012-activations-of-8-bits.md says why.
#pragma once

#include "ops/op.h"
#include "ops/packing/packed_weight.h"

namespace headrace {

enum class LinearOutput {
  kStore,       // y = result
  kAccumulate,  // y = y + result (the residual connection)
};

struct LinearArgs {
  ConstTensorView x;           // [M, K] of the activation type; any stride of whole elements
  const LinearWeight* weight;  // [N, K]
  const float* bias;           // [N] in device memory, or null
  TensorView y;  // [M, N] of x's type or f32; any stride of whole elements; does not overlap x
  LinearOutput output = LinearOutput::kStore;
};

// Takes linear_workspace_bytes(M, weight) of the context's workspace for the time of the call.
void linear(OpContext& context, const LinearArgs& args);
int64_t linear_workspace_bytes(int64_t m, const LinearWeight& weight);
OpCost op_cost(const LinearArgs& args);
const KernelSet<LinearArgs>& linear_kernels();
KernelTable<LinearArgs> linear_cuda_kernels();

}  // namespace headrace
