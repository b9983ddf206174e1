#include "ops/sampling/dry_penalty.h"

namespace headrace {
namespace {

bool breaks(const DryPenalty& dry, TokenId token) {
  return dry.breakers != nullptr &&
         std::binary_search(dry.breakers->begin(), dry.breakers->end(), token);
}

}  // namespace

std::unordered_map<TokenId, int32_t> repeated_lengths(const DryPenalty& dry,
                                                      std::span<const TokenId> history) {
  std::unordered_map<TokenId, int32_t> lengths;
  if (dry.last_tokens >= 0 && history.size() > static_cast<size_t>(dry.last_tokens)) {
    history = history.last(static_cast<size_t>(dry.last_tokens));
  }
  // Of the text read backwards, up to its last breaker: how much of it stands again at each place
  // (the Z function; Gusfield 1997). copies[i]: tokens that end i before the end and are as the
  // end.
  const auto n = static_cast<int64_t>(history.size());
  const auto at = [&](int64_t i) { return history[static_cast<size_t>(n - 1 - i)]; };
  int64_t end = 0;  // tokens behind the last breaker
  while (end < n && !breaks(dry, at(end))) ++end;
  if (end == 0) return lengths;
  std::vector<int32_t> copies(static_cast<size_t>(n), 0);
  for (int64_t i = 1, left = 0, right = 0; i < n; ++i) {
    int64_t length = 0;
    if (i < right) length = std::min<int64_t>(right - i, copies[static_cast<size_t>(i - left)]);
    while (length < end && i + length < n && at(length) == at(i + length)) ++length;
    copies[static_cast<size_t>(i)] = static_cast<int32_t>(length);
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    if (length == 0) continue;
    const TokenId next = at(i - 1);  // what followed the copy
    if (breaks(dry, next)) continue;
    int32_t& longest = lengths[next];
    longest = std::max(longest, static_cast<int32_t>(length));
  }
  return lengths;
}

}  // namespace headrace
