// Where everything lies in the memory that each rank of PeerRanks keeps for the others:
//   control | flags [ranks][blocks] | small inboxes [3 turns][ranks] | large inboxes [2
//   turns][ranks]
#pragma once

#include <cstdint>

#include "gpu/host_device.h"

namespace headrace {

// A rank's own notes from one collective to the next.
struct PeerControl {
  uint32_t small_turn;      // whose turn it is of the small inboxes
  uint32_t small_accesses;  // of the last of them
  uint32_t large_turn;      // collectives by large inboxes so far
  uint32_t blocks_done;     // of the kernel that runs
};

struct PeerMemory {
  static constexpr int kBlocksMax = 128;
  static constexpr int64_t kSmallBytes = 2 << 20;   // from one rank
  static constexpr int64_t kLargeBytes = 16 << 20;  // from one rank
  static constexpr int kSmallTurns = 3, kLargeTurns = 2;

  int ranks;

  HEADRACE_HOST_DEVICE constexpr int64_t flags() const { return 256; }
  HEADRACE_HOST_DEVICE constexpr int64_t flag(int from, int block) const {
    return flags() + (int64_t{from} * kBlocksMax + block) * int64_t{sizeof(uint32_t)};
  }
  HEADRACE_HOST_DEVICE constexpr int64_t small() const { return flag(ranks, 0); }
  HEADRACE_HOST_DEVICE constexpr int64_t small(uint32_t turn, int from) const {
    return small() + (int64_t{turn % kSmallTurns} * ranks + from) * kSmallBytes;
  }
  HEADRACE_HOST_DEVICE constexpr int64_t large() const {
    return small() + int64_t{kSmallTurns} * ranks * kSmallBytes;
  }
  HEADRACE_HOST_DEVICE constexpr int64_t large(uint32_t turn, int from) const {
    return large() + (int64_t{turn % kLargeTurns} * ranks + from) * kLargeBytes;
  }
  HEADRACE_HOST_DEVICE constexpr int64_t bytes() const {
    return large() + int64_t{kLargeTurns} * ranks * kLargeBytes;
  }
};

}  // namespace headrace
