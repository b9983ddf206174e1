#include "text/byte_trie.h"

namespace headrace {

uint32_t ByteTrie::insert(std::string_view text) {
  uint32_t node = kRoot;
  for (const char byte : text) {
    uint32_t next = step(node, byte);
    if (next == kNoNode) {
      next = node_count_++;
      edges_.insert(node, static_cast<uint8_t>(byte), next);
    }
    node = next;
  }
  return node;
}

}  // namespace headrace
