#include "route/prefix_index.h"

#include <algorithm>

namespace headrace {

size_t PrefixIndex::match(std::span<const uint64_t> blocks) const {
  const auto end = std::partition_point(blocks.begin(), blocks.end(),
                                        [&](uint64_t block) { return places_.contains(block); });
  return static_cast<size_t>(end - blocks.begin());
}

// From the last to the first: a block is never less recent than those behind it.
void PrefixIndex::insert(std::span<const uint64_t> blocks) {
  blocks = blocks.first(std::min(blocks.size(), blocks_max_));
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    const auto found = places_.find(*block);
    if (found != places_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
    } else {
      recent_.push_front(*block);
      places_.emplace(*block, recent_.begin());
    }
  }
  evict();
}

void PrefixIndex::clear() {
  recent_.clear();
  places_.clear();
}

void PrefixIndex::resize(size_t blocks_max) {
  blocks_max_ = blocks_max;
  evict();
}

void PrefixIndex::evict() {
  while (places_.size() > blocks_max_) {
    places_.erase(recent_.back());
    recent_.pop_back();
  }
}

}  // namespace headrace
