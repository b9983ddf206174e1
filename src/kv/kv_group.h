// A KV group: layers whose sequences share one block list (all full-attention layers, or those of
// one sliding window that a page holds, ...). Groups share one pool of equal pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace headrace {

enum class KvKind : uint8_t { kFull, kSliding };

struct KvGroupSpec {
  KvKind kind = KvKind::kFull;
  int32_t window = 0;           // tokens, for kSliding
  std::vector<int32_t> layers;  // model layers in this group
  int32_t block_tokens = 16;
  int64_t block_bytes = 0;  // of a page, what the layers fill
};

template <class Tokens>
constexpr Tokens pages_for(Tokens tokens, int32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

// The first page that a token at `position` attends to.
constexpr int32_t first_visible_page(const KvGroupSpec& group, int32_t position) {
  if (group.kind != KvKind::kSliding) return 0;
  return std::max(0, position - group.window + 1) / group.block_tokens;
}

}  // namespace headrace
