// A batch as tiles of rows, their keys as splits, and both on the threads of the pool. The kernels
// for one instruction set do one (tile, split) at a time.
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/split.h"

namespace headrace {

// Whether the kernels' layout and sizes cover these arguments.
bool fits_attention_tiles(const AttentionArgs& args);

// The splits of a tile: on several threads where there are few tiles (Flash-Decoding, Dao et al.,
// 2023), or each tile's by one thread.
enum class KeySplits { kSharedOut, kOneAfterTheOther };

void run_attention_tiles(OpContext& context, const AttentionArgs& args, AttendSplit attend_split,
                         KeySplits splits = KeySplits::kSharedOut);

// materialised.cc: three passes over stored scores, what tiles are measured against.
bool fits_materialised_attention(const AttentionArgs& args);
void run_materialised_attention(OpContext& context, const AttentionArgs& args);

}  // namespace headrace
