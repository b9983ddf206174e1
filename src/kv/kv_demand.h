// How many pages sequences need: arithmetic for admission and for refusing what can never fit.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kv/kv_group.h"

namespace headrace {

// How a sequence gets its pages.
enum class KvAllocation : uint8_t {
  kPaged,       // as it grows
  kReserveMax,  // the whole context length at once: the contiguous baseline that paging replaces
};

// The most pages that one sequence holds at a time while its first `tokens` tokens are computed in
// chunks of at most `chunk_tokens`.
int64_t peak_pages(std::span<const KvGroupSpec> groups, int64_t tokens, int64_t chunk_tokens);

// The same for n sequences that share the pages of a prompt that is computed once, each growing to
// `tokens` tokens. n = 1 gives peak_pages().
int64_t peak_pages_forked(std::span<const KvGroupSpec> groups, int64_t prompt_tokens,
                          int64_t tokens, int64_t chunk_tokens, int32_t n);

// What one sequence of `tokens` tokens holds while a decode computes the last of them.
int64_t pages_in_decode(std::span<const KvGroupSpec> groups, int64_t tokens);

// Where the pool's token slots are (one group's token = one slot), PagedAttention's three kinds of
// waste, and one of layouts: slots are counted by bytes, so that where a group's layers fill nine
// tenths of a page a tenth of its held slots is padding.
// used + reserved + internal + padding + external + free = total.
struct KvWaste {
  int64_t total = 0;
  int64_t used = 0;      // hold a token that its sequence still attends to
  int64_t reserved = 0;  // whole pages held for tokens that do not exist yet
  int64_t internal = 0;  // the rest of partly filled pages
  int64_t padding = 0;   // of all these, what no layer fills
  int64_t external = 0;  // free, but too few for one more reservation (0 when paged)
  int64_t free = 0;
  int64_t held() const { return used + reserved + internal + padding; }
  // Of the held slots, those that hold nothing that is attended to; 0 of nothing.
  double share() const {
    return held() > 0 ? 1 - static_cast<double>(used) / static_cast<double>(held()) : 0;
  }
};

// Its parts: name, as reports and metrics have it; slots.
struct KvWastePart {
  const char* name;
  int64_t KvWaste::*slots;
};
inline constexpr std::array<KvWastePart, 6> kKvWasteParts = {{{"used", &KvWaste::used},
                                                              {"reserved", &KvWaste::reserved},
                                                              {"internal", &KvWaste::internal},
                                                              {"padding", &KvWaste::padding},
                                                              {"external", &KvWaste::external},
                                                              {"free", &KvWaste::free}}};

// Sums over moments.
inline KvWaste operator+(KvWaste a, const KvWaste& b) {
  a.total += b.total;
  for (const KvWastePart& part : kKvWasteParts) a.*part.slots += b.*part.slots;
  return a;
}
inline KvWaste operator-(KvWaste a, const KvWaste& b) {
  a.total -= b.total;
  for (const KvWastePart& part : kKvWasteParts) a.*part.slots -= b.*part.slots;
  return a;
}

}  // namespace headrace
