// Which stage of which group a warp of blocks_gemv.cuh has when; for the kernel and its test.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"
#include "ops/linear/blocks_gemv.h"

namespace headrace {

// A warp's way through the stages of its block's groups. Of a round's groups the first stages
// stand before the second ones and so on; each warp has a stretch of that.
struct BlocksGemvTurn {
  int32_t round_first, round_groups;  // of the block's groups
  int32_t stage, group;               // of the round's groups
  int32_t left;                       // of the round, with this one

  HEADRACE_HOST_DEVICE constexpr void begin(int32_t first, int32_t groups, int32_t stages,
                                            int32_t warp) {
    round_first = first;
    round_groups = groups;
    const int32_t from = groups * stages * warp / kBlocksGemvWarps;
    stage = groups > 0 ? from / groups : 0;
    group = from - stage * groups;
    left = groups * stages * (warp + 1) / kBlocksGemvWarps - from;
  }
  HEADRACE_HOST_DEVICE constexpr void next() {
    --left;
    if (++group < round_groups) return;
    group = 0;
    ++stage;
  }
};

// Of W's `groups` the one that is dealt as number i: gated, one of gate and its one of up in turn.
HEADRACE_HOST_DEVICE constexpr int32_t blocks_gemv_group(int32_t i, int32_t groups, bool gated) {
  return gated ? i / 2 + i % 2 * (groups / 2) : i;
}

}  // namespace headrace
