// Which cached thing goes first when pages are needed: a priority queue over small handles, and the
// rules that give a thing its worth.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headrace {

// What an eviction rule may look at when the last user of a cached thing lets it go.
struct CachedUse {
  uint64_t tick = 0;     // counts such moments: a clock
  uint32_t hits = 0;     // requests that used it
  int32_t position = 0;  // of its first token in the sequence: later tokens cost more to compute
  double floor = 0;      // worth of what was evicted last; old worth ages against it
};

// The worth of a thing; the least goes first.
//   lru   least recently used
//   lfu   least frequently used with dynamic ageing (LFU-DA, Arlitt et al. 1999)
//   cost  Greedy-Dual (Cao, Irani 1997): hits x cost of computing it again, aged as in lfu
using EvictionRule = double (*)(const CachedUse&);
// kInvalidArgument names the rules there are.
Result<EvictionRule> find_eviction_rule(std::string_view name);
std::string eviction_rule_names();  // "lru, lfu, cost"

// A priority queue of handles in [0, handle_count), each in it at most once. push() and pop() take
// O(log n).
class EvictionQueue {
 public:
  struct Priority {
    bool pinned = false;  // after everything that is not
    double worth = 0;
  };

  explicit EvictionQueue(int32_t handle_count) : stamps_(static_cast<size_t>(handle_count), 0) {}

  // Queues the handle, or changes its priority where it is queued.
  void push(int32_t handle, Priority priority);
  // Nothing happens where the handle is not queued.
  void remove(int32_t handle);
  // Takes out the handle that goes first; of equal ones that which was pushed first.
  // REQUIRES: size() > 0
  int32_t pop();

  // Whether the handle that goes first is pinned. REQUIRES: size() > 0
  bool first_is_pinned();

  bool contains(int32_t handle) const { return stamps_[static_cast<size_t>(handle)] != 0; }
  int32_t size() const { return live_; }
  double last_worth() const { return last_worth_; }  // of what pop() gave last; 0 at first

 private:
  struct Entry {
    Priority priority;
    uint64_t stamp;
    int32_t handle;
  };
  static bool later(const Entry& a, const Entry& b);
  bool is_live(const Entry& entry) const {
    return stamps_[static_cast<size_t>(entry.handle)] == entry.stamp;
  }
  void drop_dead();

  std::vector<Entry> heap_;       // entries whose stamp is not their handle's are dead
  std::vector<uint64_t> stamps_;  // [handles] 0: not in the queue
  uint64_t next_stamp_ = 1;
  int32_t live_ = 0;
  double last_worth_ = 0;
};

}  // namespace headrace
