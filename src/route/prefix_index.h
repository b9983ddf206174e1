// Which blocks of text a worker has seen and, as far as its cache is large enough, still holds. The
// hashes are chained, so that a flat table of them is a radix tree: a block is there only with all
// before it, and the least recently used one is always a leaf. (SGLang's router keeps a tree of
// characters, vLLM's production stack one of chunks: the same idea.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

namespace headrace {

// One thread at a time.
class PrefixIndex {
 public:
  explicit PrefixIndex(size_t blocks_max) : blocks_max_(blocks_max) {}

  // How many of the blocks, from the first, are there. O(log n).
  size_t match(std::span<const uint64_t> blocks) const;
  // They are there now, as the most recently used.
  void insert(std::span<const uint64_t> blocks);
  void clear();
  // The worker has told how much its cache holds.
  void resize(size_t blocks_max);
  size_t size() const { return places_.size(); }

 private:
  void evict();

  size_t blocks_max_;
  std::list<uint64_t> recent_;  // the most recent in front
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

}  // namespace headrace
