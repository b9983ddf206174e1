// A batch as tiles of rows, their keys as splits, and both on the threads of the pool. The kernels
// for one instruction set do one (tile, split) at a time.
#pragma once

#include "ops/attention.h"
#include "ops/attention_split.h"

namespace headrace {

// Whether the kernels' layout and sizes cover these arguments.
bool fits_attention_tiles(const AttentionArgs& args);

void run_attention_tiles(OpContext& context, const AttentionArgs& args, AttendSplit attend_split);

}  // namespace headrace
