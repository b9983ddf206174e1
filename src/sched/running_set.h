// The sequences that have a slot (Prefilling or Decoding), by rank: the oldest first, the
// background behind all that is live.
#pragma once

#include <span>
#include <vector>

#include "sched/sequence.h"

namespace headrace {

class RunningSet {
 public:
  std::span<Sequence* const> all() const { return list_; }
  std::span<Sequence* const> live() const;  // without the background
  bool empty() const { return list_.empty(); }
  int64_t size() const { return static_cast<int64_t>(list_.size()); }
  bool has_background() const { return !list_.empty() && list_.back()->rank.background; }
  // REQUIRES: not empty
  Sequence& oldest() const { return *list_.front(); }
  Sequence& youngest() const { return *list_.back(); }
  // The oldest; of a search, whose beams wait for each other, the first that need not.
  Sequence& oldest_to_go_on() const;

  void insert(Sequence& sequence);
  void remove(Sequence& sequence);  // REQUIRES: it is here, by the rank that it has

 private:
  std::vector<Sequence*> list_;
};

}  // namespace headrace
