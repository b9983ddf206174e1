#include "engine/penalty_counts.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace headrace {

PenaltyCounts::PenaltyCounts(const SamplingParams& sampling, TokenSpan tokens, size_t prompt) {
  if (!penalises_tokens(sampling)) return;
  size_t counted = tokens.size() - prompt;
  window_ = std::numeric_limits<size_t>::max();
  if (has_penalty_window(sampling)) {
    window_ = static_cast<size_t>(sampling.penalty_window);
    counted = std::min(tokens.size(), window_);
  }
  for (const TokenId token : tokens.last(counted)) enter(token);
}

void PenaltyCounts::follow(TokenSpan tokens) {
  if (window_ == 0) return;
  enter(tokens.back());
  if (tokens.size() > window_) leave(tokens[tokens.size() - 1 - window_]);
}

void PenaltyCounts::enter(TokenId token) {
  const auto [at, is_new] = places_.try_emplace(token, entries_.size());
  if (is_new) entries_.push_back({.token = token});
  ++entries_[at->second].count;
}

void PenaltyCounts::leave(TokenId token) {
  const auto at = places_.find(token);
  CHECK(at != places_.end());
  const size_t place = at->second;
  if (--entries_[place].count > 0) return;
  places_.erase(at);
  if (place + 1 < entries_.size()) {  // the last takes its place
    entries_[place] = entries_.back();
    places_[entries_[place].token] = place;
  }
  entries_.pop_back();
}

}  // namespace headrace
