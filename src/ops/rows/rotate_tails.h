// rotate_tails: rotary position embedding (Su et al., 2021) of the last components of heads, of
// which neighbours are a pair, in place (DeepSeek V4). Turned the other way it undoes itself:
// values that were rotated as keys are of a row's own position then.
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace headrace {

struct RotateTailsArgs {
  TensorView x;            // [T, heads head_dim] f32, in place; may be columns of more
  ConstTensorView cos;     // [T, pairs] f32; 2 pairs <= head_dim
  ConstTensorView sin;     // likewise
  int32_t head_dim = 0;    // divides the columns
  bool backwards = false;  // by the negative angle
};

// Row t of the result depends on row t of the arguments alone, bit for bit. CPU.
void rotate_tails(OpContext& context, const RotateTailsArgs& args);

OpCost op_cost(const RotateTailsArgs& args);
const KernelSet<RotateTailsArgs>& rotate_tails_kernels();
KernelTable<RotateTailsArgs> rotate_tails_cpu_kernels();

}  // namespace headrace
