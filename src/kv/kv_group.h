// A KV group: layers whose sequences share one block list (all full-attention layers, all layers of
// one sliding window, ...). Groups share one pool of equal pages.
#pragma once

#include <cstdint>
#include <vector>

namespace headrace {

enum class KvKind : uint8_t { kFull, kSliding };

struct KvGroupSpec {
  KvKind kind = KvKind::kFull;
  int32_t window = 0;           // tokens, for kSliding
  std::vector<int32_t> layers;  // model layers in this group
  int32_t block_tokens = 16;
  int64_t block_bytes = 0;  // bytes of one page
};

}  // namespace headrace
