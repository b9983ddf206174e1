// The CPU kernels of linear, as its table lists them.
#pragma once

#include "ops/linear/cpu_isa.h"
#include "ops/linear/linear.h"

namespace headrace {

// Exact weights and activations, double sums, one thread: the oracle.
void linear_cpu_reference(OpContext& context, const LinearArgs& args);

// The kernels of block types and of float types.
struct LinearCpuKernels {
  const LinearCpuIsa& blocks;
  const LinearFloatKernels& floats;
};

// Runs the tiles of one instruction set on the device's pool. REQUIRES: the CPU has it
void linear_cpu_tiled(OpContext& context, const LinearArgs& args, const LinearCpuKernels& kernels);

// What either takes of the workspace.
int64_t linear_cpu_workspace_bytes(int64_t m, const LinearWeight& weight);

}  // namespace headrace
