// What linear's driver asks of the float types: staging of x and runs of row groups.
#pragma once

#include "ops/linear/cpu_isa.h"
#include "ops/linear/linear.h"

namespace headrace {

// x as each float type's kernel reads it; null where the weight has no segment of the type. Types
// that stage alike share one copy.
struct StagedFloats {
  const std::byte* f32 = nullptr;
  const std::byte* f16 = nullptr;
  const std::byte* bf16 = nullptr;
};

// x as `kernel` reads it, on the device's pool; takes the rows, padded, of the workspace.
const std::byte* stage_rows(OpContext& context, const ConstTensorView& x,
                            const LinearFloatKernel& kernel);
// Bytes of a staged row.
int64_t staged_row_bytes(const LinearFloatKernel& kernel, int64_t k);

// Takes staged_float_bytes() of the workspace at most, on the device's pool.
StagedFloats stage_floats(OpContext& context, const LinearArgs& args,
                          const LinearFloatKernels& kernels);
int64_t staged_float_bytes(int64_t m, const LinearWeight& weight);

// Groups [first, last) of a segment of float weights against all rows of x; one thread.
void run_float_groups(const LinearArgs& args, const LinearFloatKernels& kernels,
                      const StagedFloats& staged, const LinearWeight::Segment& segment,
                      int64_t first, int64_t last);

// Groups that tiles of a type take at once: threads' shares are multiples of it.
int64_t group_multiple(const LinearFloatKernels& kernels, DType dtype);

}  // namespace headrace
