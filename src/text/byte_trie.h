// A set of texts with a number each, walked byte by byte: all texts that begin at a place are found
// in one walk.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/flat_table.h"

namespace headrace {

// Built once, then only read; any thread.
class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNoNode = PairTable::kNone;

  // Room for texts of `byte_count` bytes together.
  explicit ByteTrie(size_t byte_count) : edges_(byte_count) {}

  // Returns the text's node: equal texts have one.
  uint32_t insert(std::string_view text);
  // The node behind `byte`, or kNoNode.
  uint32_t step(uint32_t node, char byte) const {
    return edges_.find(node, static_cast<uint8_t>(byte));
  }
  size_t node_count() const { return node_count_; }

 private:
  PairTable edges_;  // (node, byte) -> node
  uint32_t node_count_ = 1;
};

}  // namespace headrace
