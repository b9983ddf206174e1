#include "kv/prefix_pins.h"

#include <utility>

namespace headrace {

int32_t PrefixPins::pin(uint64_t id, std::string salt, std::vector<TokenId> tokens) {
  unpin(id);
  if (cache_ == nullptr) return 0;
  const auto unit = static_cast<size_t>(cache_->unit_tokens());
  PrefixMatch match = cache_->match(key_of(salt), tokens, static_cast<int32_t>(tokens.size()));
  const size_t units = static_cast<size_t>(match.tokens) / unit;  // a part of a unit is not pinned
  if (units == 0) return 0;
  match.nodes.resize(units);
  cache_->pin(match);
  tokens.resize(units * unit);
  const auto count = static_cast<int32_t>(tokens.size());
  pinned_[id] = {std::move(salt), std::move(tokens)};
  return count;
}

void PrefixPins::unpin(uint64_t id) {
  const auto found = pinned_.find(id);
  if (found == pinned_.end()) return;
  cache_->unpin(key_of(found->second.salt), found->second.tokens);
  pinned_.erase(found);
}

}  // namespace headrace
