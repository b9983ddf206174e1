// Which stage of which group a warp of blocks_gemv.cuh has when; for the kernel and its test.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"
#include "ops/linear/blocks_gemv.h"

namespace headrace {

// A warp's way through the stages of its block's groups: it has a stretch of those of a round of
// groups, group by group.
struct BlocksGemvTurn {
  int32_t round_first, round_groups;  // of the block's groups
  int32_t stages;                     // of a group
  int32_t stage, group;               // group: of the round's
  int32_t left;                       // of the round, with this one

  HEADRACE_HOST_DEVICE constexpr void begin(int32_t first, int32_t groups, int32_t stages_in,
                                            int32_t warp) {
    round_first = first;
    round_groups = groups;
    stages = stages_in;
    const int32_t from = groups * stages * warp / kBlocksGemvWarps;
    group = from / stages;
    stage = from - group * stages;
    left = groups * stages * (warp + 1) / kBlocksGemvWarps - from;
  }
  // `count` stages further on, at the end of this group at most.
  HEADRACE_HOST_DEVICE constexpr void skip(int32_t count) {
    left -= count;
    stage += count;
    if (stage < stages) return;
    stage = 0;
    ++group;
  }
};

// Of W's `groups` the one that is dealt as number i: gated, one of gate and its one of up in turn.
HEADRACE_HOST_DEVICE constexpr int32_t blocks_gemv_group(int32_t i, int32_t groups, bool gated) {
  return gated ? i / 2 + i % 2 * (groups / 2) : i;
}

}  // namespace headrace
