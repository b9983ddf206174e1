// Prefixes that somebody asked to keep, by an id: what PrefixCache::pin() was told, so that the
// same is taken back. One thread, the cache's.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/prefix_cache.h"

namespace headrace {

class PrefixPins {
 public:
  // Of the base model in this arithmetic. `cache` outlives this; null: nothing is ever pinned.
  PrefixPins(PrefixCache* cache, uint64_t arithmetic) : cache_(cache), arithmetic_(arithmetic) {}

  // Pins the longest beginning of `tokens` that is in the cache, in whole units. Returns its
  // tokens; 0: nothing is pinned. An id that is in use is unpinned first.
  int32_t pin(uint64_t id, std::string salt, std::vector<TokenId> tokens);
  // Nothing happens for an id that is not in use.
  void unpin(uint64_t id);

  size_t size() const { return pinned_.size(); }

 private:
  struct Pinned {
    std::string salt;
    std::vector<TokenId> tokens;
  };
  PrefixKey key_of(const std::string& salt) const {
    return {.salt = salt, .arithmetic = arithmetic_};
  }

  PrefixCache* const cache_;
  const uint64_t arithmetic_;
  std::unordered_map<uint64_t, Pinned> pinned_;
};

}  // namespace headrace
