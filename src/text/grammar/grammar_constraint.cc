#include "text/grammar/grammar_constraint.h"

#include <string>
#include <utility>
#include <vector>

#include "text/grammar/grammar_automaton.h"
#include "text/grammar/least_tokens.h"

namespace headrace {
namespace {

class GrammarMatcher final : public TokenMatcher {
 public:
  GrammarMatcher(std::shared_ptr<GrammarAutomaton> automaton, std::shared_ptr<const TokenTrie> trie)
      : place_(std::move(automaton)), trie_(std::move(trie)) {}

  void fill_mask(std::span<uint32_t> allowed, int32_t tokens_left) override {
    if (ended_) {
      std::fill(allowed.begin(), allowed.end(), 0u);
    } else {
      place_.fill(*trie_, tokens_left, allowed);
    }
    if (!ended_ && !place_.can_end()) return;
    for (TokenId id : trie_->end_ids()) {
      const auto bit = static_cast<size_t>(id);
      if (bit / 32 < allowed.size()) allowed[bit / 32] |= uint32_t{1} << (bit % 32);
    }
  }

  bool only_ends() override { return ended_ || (place_.can_end() && !place_.can_go_on(*trie_)); }

  // Behind the end (which ignore_eos does not heed) there are only ends.
  void accept(TokenId token) override {
    if (ended_) return;
    if (trie_->is_end(token)) {
      ended_ = place_.can_end();
      if (!ended_) place_.kill();
      return;
    }
    const std::string_view spelling = trie_->spelling(token);
    if (spelling.empty()) return place_.kill();
    place_.accept(spelling);
  }

  // Up to a mark, which no text spells.
  void propose(size_t most, std::vector<TokenId>& tokens) override {
    if (ended_) return;
    const std::string forced = place_.forced(kForcedBytesMax);
    trie_->spell(std::string_view(forced).substr(0, forced.find(static_cast<char>(kMarkByte))),
                 most, tokens);
  }

  std::unique_ptr<TokenMatcher> clone() const override {
    return std::make_unique<GrammarMatcher>(*this);
  }

 private:
  static constexpr size_t kForcedBytesMax = 128;

  GrammarPlace place_;
  const std::shared_ptr<const TokenTrie> trie_;
  bool ended_ = false;
};

class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
                    std::vector<uint32_t> least)
      : automaton_(std::make_shared<GrammarAutomaton>(std::move(grammar), std::move(least))),
        trie_(std::move(trie)) {}

  std::unique_ptr<TokenMatcher> begin() const override {
    return std::make_unique<GrammarMatcher>(automaton_, trie_);
  }
  size_t bytes() const override { return automaton_->bytes(); }

  Status check_start() const {
    GrammarPlace place(automaton_);
    if (place.can_go_on(*trie_)) return ok_status();
    if (place.dead()) {
      return invalid_argument("it is too ambiguous: too many ways of reading a text are open");
    }
    return invalid_argument("no token of the model's vocabulary begins a text of it");
  }

 private:
  const std::shared_ptr<GrammarAutomaton> automaton_;
  const std::shared_ptr<const TokenTrie> trie_;
};

}  // namespace

Result<std::shared_ptr<const TokenConstraint>> make_grammar_constraint(
    std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
    bool ends_in_time) {
  std::vector<uint32_t> least;
  if (ends_in_time) least = least_tokens(*grammar, *trie);
  auto constraint =
      std::make_shared<GrammarConstraint>(std::move(grammar), std::move(trie), std::move(least));
  HR_RETURN_IF_ERROR(constraint->check_start());
  return std::shared_ptr<const TokenConstraint>(std::move(constraint));
}

}  // namespace headrace
