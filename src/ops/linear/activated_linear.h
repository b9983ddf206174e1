// activated_linear: the gates of a feed-forward network (Shazeer, 2020) and the product that reads
// what they let through as one op, so that a device may apply gates where it lays out rows for the
// product.
#pragma once

#include "ops/linear/linear.h"
#include "ops/rows/activation.h"

namespace headrace {

struct ActivatedLinearArgs {
  GatedActivationArgs gates;  // of gate_up [M, 2K] (no `up`); `out` is scratch, for kernels that
                              // need it
  LinearArgs linear;          // of x = gates.out
};

// Takes linear_workspace_bytes(M, weight) of the context's workspace for the time of the call.
// `two_ops` is gated_activation, then linear. What gates let through is rounded to its type
// whatever kernel runs.
void activated_linear(OpContext& context, const ActivatedLinearArgs& args);
// Whether a kernel has both in one. Where none has, the product before may apply the gates
// (gated_linear.h).
bool activation_joins(OpContext& context, const ActivatedLinearArgs& args);
const KernelSet<ActivatedLinearArgs>& activated_linear_kernels();
KernelTable<ActivatedLinearArgs> activated_linear_cuda_kernels();

}  // namespace headrace
