#include "text/grammar/grammar_automaton.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace headrace {
namespace {

uint64_t stack_key(Grammar::Position at, uint32_t below) { return uint64_t{at} << 32 | below; }

void set_bit(std::span<uint32_t> words, TokenId id) {
  words[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}

}  // namespace

size_t GrammarStates::Hash::operator()(const std::vector<uint32_t>& stacks) const {
  uint64_t hash = stacks.size();
  for (uint32_t stack : stacks) hash = mix64(hash ^ stack);
  return hash;
}

GrammarStates::GrammarStates(const Grammar& grammar, std::span<const uint32_t> least)
    : grammar_(grammar),
      least_tokens_(least),
      class_count_(static_cast<size_t>(grammar.class_count())) {
  finish_state();  // kDead: no stack
}

uint32_t GrammarStates::stack(Grammar::Position at, uint32_t below) {
  const auto [found, is_new] =
      stack_index_.try_emplace(stack_key(at, below), static_cast<uint32_t>(stacks_.size()));
  if (!is_new) return found->second;
  stacks_.push_back({at, below});
  heights_.push_back(below == kBottom ? 1 : static_cast<uint16_t>(heights_[below] + 1));
  const uint32_t least = least_tokens_.empty() ? kNeverEnds : least_tokens_[at];
  leasts_.push_back(below == kBottom ? least : std::min(least + leasts_[below], kNeverEnds));
  bytes_ += 68;
  return found->second;
}

// Adds the stacks that begin at `at` with a set of bytes, to be taken next.
void GrammarStates::expand(Grammar::Position at, uint32_t below) {
  to_expand_.push_back({at, below});
  while (!to_expand_.empty()) {
    const Stack top = to_expand_.back();
    to_expand_.pop_back();
    if (!expanded_.try_emplace(stack_key(top.at, top.below), true).second) continue;
    if (--work_left_ < 0) return to_expand_.clear();
    if (grammar_.at_end(top.at)) {
      if (top.below == kBottom) {
        can_end_ = true;
      } else {
        to_expand_.push_back(stacks_[top.below]);
      }
    } else if (grammar_.at_rule(top.at)) {
      // Nothing to come back to: the rule's end is this one's.
      const bool last = grammar_.at_end(top.at + 1);
      const uint32_t back = last ? top.below : stack(top.at + 1, top.below);
      if (back != kBottom && heights_[back] > kHeightMax) continue;
      for (Grammar::Position first : grammar_.alternatives(top.at)) {
        to_expand_.push_back({first, back});
      }
    } else {
      found_.push_back(stack(top.at, top.below));
    }
  }
}

// The state of what expand() has found; the next begins.
GrammarStates::State GrammarStates::finish_state() {
  std::vector<uint32_t> stacks = std::exchange(found_, {});
  const bool can_end = std::exchange(can_end_, false);
  expanded_.clear();
  if (stacks.size() > kStacksMax || bytes_ > kBytesMost) work_left_ = -1;
  if (work_left_ < 0 && !states_.empty()) return kDead;
  std::sort(stacks.begin(), stacks.end());
  // That the text may end here is one more stack.
  if (can_end) stacks.push_back(kBottom);
  const auto [found, is_new] = state_index_.try_emplace(stacks, static_cast<State>(states_.size()));
  if (!is_new) return found->second;
  if (can_end) stacks.pop_back();
  bytes_ += 200 + 8 * stacks.size() + 4 * class_count_;
  Row row;
  row.stacks = std::move(stacks);
  row.can_end = can_end;
  for (uint32_t each : row.stacks) row.least = std::min(row.least, leasts_[each]);
  if (can_end && !least_tokens_.empty()) row.least = 0;
  states_.push_back(std::move(row));
  next_.resize(next_.size() + class_count_, kUnknown);
  return found->second;
}

GrammarStates::State GrammarStates::start() {
  expand(grammar_.start(), kBottom);
  return finish_state();
}

GrammarStates::State GrammarStates::step(State state, uint8_t byte) {
  const uint8_t byte_class = grammar_.class_of(byte);
  if (next(state, byte_class) != kUnknown) return next(state, byte_class);
  work_left_ -= static_cast<int64_t>(states_[state].stacks.size());
  for (uint32_t each : states_[state].stacks) {
    const Stack top = stacks_[each];
    if (grammar_.takes(top.at, byte_class)) expand(top.at + 1, top.below);
  }
  const State found = finish_state();
  if (work_left_ >= 0) next(state, byte_class) = found;
  return found;
}

std::optional<uint8_t> GrammarStates::only_byte(State state) {
  Row& row = states_[state];
  if (row.only_byte == kNotLooked) row.only_byte = find_only_byte(row);
  if (row.only_byte < 0) return std::nullopt;
  return static_cast<uint8_t>(row.only_byte);
}

int16_t GrammarStates::find_only_byte(const Row& row) const {
  if (row.can_end || row.stacks.size() > kOnlyStacksMax) return kNoOnlyByte;
  std::optional<uint8_t> found;  // a class
  for (size_t each = 0; each < class_count_; ++each) {
    const auto byte_class = static_cast<uint8_t>(each);
    const bool taken = std::any_of(row.stacks.begin(), row.stacks.end(), [&](uint32_t stack) {
      return grammar_.takes(stacks_[stack].at, byte_class);
    });
    if (!taken) continue;
    if (found.has_value()) return kNoOnlyByte;
    found = byte_class;
  }
  if (!found.has_value()) return kNoOnlyByte;
  const std::optional<uint8_t> byte = grammar_.only_byte_of(*found);
  return byte.has_value() ? int16_t{*byte} : kNoOnlyByte;
}

GrammarStates::State GrammarStates::take_over(const GrammarStates& from, State state) {
  can_end_ = from.states_[state].can_end;
  std::vector<Stack> path;
  for (uint32_t each : from.states_[state].stacks) {
    path.clear();
    for (uint32_t at = each; at != kBottom; at = from.stacks_[at].below) {
      path.push_back(from.stacks_[at]);
    }
    uint32_t below = kBottom;
    for (size_t i = path.size(); i-- > 0;) below = stack(path[i].at, below);
    found_.push_back(below);
  }
  return finish_state();
}

// --- tokens

// One walk over the tree of all tokens: what is beneath a byte that leads nowhere is passed over.
template <class Take>
bool GrammarStates::walk(State state, const TokenTrie& trie, const Take& take) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::vector<State> at(static_cast<size_t>(trie.depth_max()) + 1);
  at[0] = state;
  for (size_t i = 0; i < trie.node_count();) {
    const TokenTrie::Node& node = nodes[i];
    State to = next(at[node.depth], grammar_.class_of(node.byte));
    if (to == kUnknown) {
      to = step(at[node.depth], node.byte);
      if (work_left_ < 0) return false;
    }
    if (to == kDead) {
      i = node.end;
      continue;
    }
    at[node.depth + 1u] = to;
    const uint32_t count = nodes[i + 1].first_id - node.first_id;
    if (count > 0) take(to, trie.ids().subspan(node.first_id, count));
    ++i;
  }
  return true;
}

void GrammarStates::keep_tokens(Row& row, std::vector<uint32_t> words) {
  size_t count = 0;
  for (uint32_t word : words) count += static_cast<size_t>(std::popcount(word));
  row.tokens_found = true;
  row.has_token = count > 0;
  // Most states of a form allow a handful.
  if (count > words.size()) {
    row.words = std::move(words);
  } else {
    row.few.reserve(count);
    for (size_t word = 0; word < words.size(); ++word) {
      for (uint32_t bits = words[word]; bits != 0; bits &= bits - 1) {
        row.few.push_back(static_cast<TokenId>(word * 32) + std::countr_zero(bits));
      }
    }
  }
  bytes_ += 4 * (row.few.size() + row.words.size());
}

bool GrammarStates::find_tokens(State state, const TokenTrie& trie) {
  if (states_[state].tokens_found) return true;
  const size_t before = bytes_;
  std::vector<uint32_t> words((static_cast<size_t>(trie.vocab_size()) + 31) / 32);
  uint32_t most_after = 0;
  const bool whole = walk(state, trie, [&](State to, std::span<const TokenId> ids) {
    for (TokenId id : ids) set_bit(words, id);
    most_after = std::max(most_after, states_[to].least);
  });
  if (!whole) return false;
  states_[state].most_after = most_after;
  keep_tokens(states_[state], std::move(words));
  // What a form needs for one mask is not thrown away for the next. Half of the most is left to it.
  if (bytes_ - before > kBytesMax / 4)
    bytes_max_ = std::min(bytes_max_ + (bytes_ - before), kBytesMost / 2);
  return true;
}

void GrammarStates::fill(State state, std::span<uint32_t> allowed) const {
  const Row& row = states_[state];
  CHECK(row.tokens_found && row.words.size() <= allowed.size());
  const auto rest = std::copy(row.words.begin(), row.words.end(), allowed.begin());
  std::fill(rest, allowed.end(), 0u);
  for (TokenId id : row.few) set_bit(allowed, id);
}

// Near the end of an answer a state is asked once how near its tokens lead.
void GrammarStates::find_nearer(State state, const TokenTrie& trie) {
  std::vector<std::pair<TokenId, uint32_t>> nearer;
  const uint32_t most = states_[state].most_after;
  walk(state, trie, [&](State to, std::span<const TokenId> ids) {
    const uint32_t least = states_[to].least;
    for (TokenId id : ids) {
      if (least < most) nearer.emplace_back(id, least);
    }
  });
  nearer.shrink_to_fit();
  bytes_ += 8 * nearer.size();
  states_[state].nearer = std::move(nearer);
  states_[state].nearer_found = true;
}

void GrammarStates::fill_within(State state, const TokenTrie& trie, uint32_t least,
                                std::span<uint32_t> allowed) {
  if (least >= states_[state].most_after) return fill(state, allowed);
  if (!states_[state].nearer_found) find_nearer(state, trie);
  std::fill(allowed.begin(), allowed.end(), 0u);
  for (const auto& [id, tokens] : states_[state].nearer) {
    if (tokens <= least) set_bit(allowed, id);
  }
}

// --- a place in a text

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const Grammar> grammar,
                                   std::vector<uint32_t> least)
    : grammar_(std::move(grammar)),
      least_(std::move(least)),
      states_(std::make_shared<GrammarStates>(*grammar_, least_)) {}

size_t GrammarAutomaton::bytes() const {
  std::lock_guard lock(mutex_);
  return states_->bytes();
}

GrammarPlace::GrammarPlace(std::shared_ptr<GrammarAutomaton> automaton)
    : automaton_(std::move(automaton)) {
  std::lock_guard lock(automaton_->mutex_);
  states_ = automaton_->states_;
  states_->begin_call();
  state_ = states_->start();
  dead_ = states_->worked_too_much();
}

// Into the generation that all work in. REQUIRES: the automaton's mutex
void GrammarPlace::catch_up() {
  if (automaton_->states_->is_full()) {
    automaton_->states_ =
        std::make_shared<GrammarStates>(*automaton_->grammar_, automaton_->least_);
  }
  automaton_->states_->begin_call();
  if (states_ == automaton_->states_) return;
  state_ = automaton_->states_->take_over(*states_, state_);
  states_ = automaton_->states_;
}

bool GrammarPlace::accept(std::string_view bytes) {
  if (dead_) return false;
  std::lock_guard lock(automaton_->mutex_);
  catch_up();
  for (char c : bytes) {
    state_ = states_->step(state_, static_cast<uint8_t>(c));
    if (state_ == GrammarStates::kDead) return !(dead_ = true);
  }
  return true;
}

bool GrammarPlace::can_end() {
  if (dead_) return false;
  std::lock_guard lock(automaton_->mutex_);
  return states_->can_end(state_);
}

std::string GrammarPlace::forced(size_t bytes_max) {
  std::string bytes;
  if (dead_) return bytes;
  std::lock_guard lock(automaton_->mutex_);
  catch_up();
  GrammarStates::State at = state_;
  while (bytes.size() < bytes_max) {
    const std::optional<uint8_t> byte = states_->only_byte(at);
    if (!byte.has_value()) break;
    at = states_->step(at, *byte);
    if (at == GrammarStates::kDead) break;
    bytes.push_back(static_cast<char>(*byte));
  }
  return bytes;
}

bool GrammarPlace::find_tokens(const TokenTrie& trie) {
  if (dead_) return false;
  catch_up();
  dead_ = !states_->find_tokens(state_, trie);
  return !dead_;
}

void GrammarPlace::fill(const TokenTrie& trie, int32_t tokens_left, std::span<uint32_t> allowed) {
  std::lock_guard lock(automaton_->mutex_);
  if (!find_tokens(trie)) return std::fill(allowed.begin(), allowed.end(), 0u);
  const int64_t left = tokens_left;
  const uint32_t least = states_->least(state_);
  if (least >= kNeverEnds || least > left) return states_->fill(state_, allowed);
  // A token is kept for the end where the text needs fewer than there are. The last of all may also
  // go on with a text that is whole behind it.
  const int64_t after = least < left ? std::max<int64_t>(0, left - 2) : left - 1;
  states_->fill_within(state_, trie, static_cast<uint32_t>(after), allowed);
}

bool GrammarPlace::can_go_on(const TokenTrie& trie) {
  std::lock_guard lock(automaton_->mutex_);
  return find_tokens(trie) && states_->has_token(state_);
}

}  // namespace headrace
