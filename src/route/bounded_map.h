// What was learned lately, up to a bound: the least recently used entry goes first.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace headrace {

// One thread at a time.
template <class Value>
class BoundedMap {
 public:
  explicit BoundedMap(size_t entries_max) : entries_max_(entries_max) {}

  void put(std::string_view key, Value value) {
    const auto found = places_.find(key);
    if (found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      entries_.front().second = std::move(value);
      return;
    }
    entries_.emplace_front(std::string(key), std::move(value));
    places_.emplace(entries_.front().first, entries_.begin());
    if (entries_.size() <= entries_max_) return;
    places_.erase(entries_.back().first);
    entries_.pop_back();
  }

  std::optional<Value> find(std::string_view key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().second;
  }

  size_t size() const { return entries_.size(); }

 private:
  using Entries = std::list<std::pair<std::string, Value>>;
  const size_t entries_max_;
  Entries entries_;
  std::unordered_map<std::string_view, typename Entries::iterator> places_;  // views of entries_
};

}  // namespace headrace
