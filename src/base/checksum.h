// A 64-bit checksum of bytes that were written by this program and are read again: finds what a
// disk or a crash has damaged, not what somebody has forged. Four lanes, so that it runs at the
// speed of memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/rng.h"

namespace headrace {

inline uint64_t checksum64(std::span<const std::byte> bytes, uint64_t seed = 0) {
  uint64_t lanes[4] = {mix64(seed), mix64(seed + 1), mix64(seed + 2), mix64(seed + 3)};
  const auto add = [](uint64_t& lane, uint64_t word) {
    lane = std::rotl(lane ^ word, 29) * 0x9ddfea08eb382d69ull;
  };
  size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes.data() + at, 32);
    for (int lane = 0; lane < 4; ++lane) add(lanes[lane], words[lane]);
  }
  for (int lane = 0; at < bytes.size(); ++lane, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    add(lanes[lane], word);
  }
  uint64_t sum = mix64(bytes.size());
  for (uint64_t lane : lanes) sum = mix64(sum ^ lane);
  return sum;
}

}  // namespace headrace
