// Which stage of which group a warp of blocks_gemv.cuh has when; for the kernel and its test.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"
#include "ops/linear/blocks_gemv.h"

namespace headrace {

// A warp's way through the stages of its block's groups: it has a stretch of those of a round of
// groups. Group by group, or the first stages of all before the second ones and so on, so that x
// stays.
struct BlocksGemvTurn {
  int32_t round_first, round_groups;  // of the block's groups
  int32_t stages;                     // of a group
  int32_t stage, group;               // group: of the round's
  int32_t left;                       // of the round, with this one

  template <bool kByStage>
  HEADRACE_HOST_DEVICE constexpr void begin(int32_t first, int32_t groups, int32_t stages_in,
                                            int32_t warp) {
    round_first = first;
    round_groups = groups;
    stages = stages_in;
    const int32_t from = groups * stages * warp / kBlocksGemvWarps;
    const int32_t inner = kByStage ? groups : stages;
    const int32_t outer = inner > 0 ? from / inner : 0;
    stage = kByStage ? outer : from - outer * inner;
    group = kByStage ? from - outer * inner : outer;
    left = groups * stages * (warp + 1) / kBlocksGemvWarps - from;
  }
  template <bool kByStage>
  HEADRACE_HOST_DEVICE constexpr void next() {
    --left;
    int32_t& inner = kByStage ? group : stage;
    if (++inner < (kByStage ? round_groups : stages)) return;
    inner = 0;
    ++(kByStage ? stage : group);
  }
};

// Of W's `groups` the one that is dealt as number i: gated, one of gate and its one of up in turn.
HEADRACE_HOST_DEVICE constexpr int32_t blocks_gemv_group(int32_t i, int32_t groups, bool gated) {
  return gated ? i / 2 + i % 2 * (groups / 2) : i;
}

}  // namespace headrace
