#include "text/grammar/least_tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace headrace {
namespace {

using Position = Grammar::Position;

uint32_t sum(uint32_t a, uint32_t b) { return std::min(a + b, kNeverEnds); }

// Looks tokens up by their bytes.
class TokenFinder {
 public:
  explicit TokenFinder(const TokenTrie& trie) : trie_(trie) {
    roots_.fill(kNone);
    for (size_t i = 0; i < trie.node_count(); i = trie.nodes()[i].end) {
      roots_[trie.nodes()[i].byte] = i;
    }
  }

  bool has_byte(uint8_t byte) const { return roots_[byte] != kNone && is_token(roots_[byte]); }

  // The lengths of the tokens that begin the text, which is not empty.
  template <class Visit>
  void each_beginning(std::span<const uint8_t> text, const Visit& visit) const {
    size_t node = roots_[text[0]];
    for (size_t length = 1; node != kNone; ++length) {
      if (is_token(node)) visit(length);
      if (length == text.size()) return;
      node = child(node, text[length]);
    }
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  bool is_token(size_t node) const {
    return trie_.nodes()[node].first_id < trie_.nodes()[node + 1].first_id;
  }
  size_t child(size_t node, uint8_t byte) const {
    const size_t end = trie_.nodes()[node].end;
    for (size_t i = node + 1; i < end; i = trie_.nodes()[i].end) {
      if (trie_.nodes()[i].byte >= byte) return trie_.nodes()[i].byte == byte ? i : kNone;
    }
    return kNone;
  }

  const TokenTrie& trie_;
  std::array<size_t, 256> roots_{};
};

class LeastTokens {
 public:
  LeastTokens(const Grammar& grammar, const TokenTrie& trie)
      : grammar_(grammar),
        tokens_(trie),
        steps_(grammar.position_count()),
        least_(grammar.position_count(), kNeverEnds),
        rules_(grammar.rule_count(), kNeverEnds) {
    std::array<int, 256> bytes{};
    for (int byte = 255; byte >= 0; --byte) {
      const auto each = static_cast<uint8_t>(byte);
      const uint8_t byte_class = grammar.class_of(each);
      if (tokens_.has_byte(each)) spelt_.add(byte_class);
      ++bytes[byte_class];
      byte_of_[byte_class] = each;
    }
    for (size_t i = 0; i < 256; ++i) {
      if (bytes[i] != 1) byte_of_[i].reset();
    }
  }

  std::vector<uint32_t> find() {
    find_steps(grammar_.start());
    for (uint32_t rule = 0; rule < grammar_.rule_count(); ++rule) {
      for (const Position first : grammar_.alternatives_of(rule)) find_steps(first);
    }
    // What rules refer to lies before them and behind them: both ways in turns. Where more turns
    // would find fewer tokens, what was found is still enough.
    constexpr int kTurnsMax = 64;
    bool better = true;
    for (int turn = 0; better && turn < kTurnsMax; ++turn) {
      better = false;
      for (uint32_t i = 0; i < grammar_.rule_count(); ++i) {
        better |= look_at_rule(turn % 2 == 0 ? grammar_.rule_count() - 1 - i : i);
      }
    }
    look_at(grammar_.start());
    return std::move(least_);
  }

 private:
  // From a place before bytes to where the tokens that spell them can be counted from anew.
  struct Step {
    uint32_t tokens = 0;
    Position to = 0;
  };

  Position end_of(Position at) const {
    while (!grammar_.at_end(at)) ++at;
    return at;
  }

  std::optional<uint8_t> byte_at(Position at) const {
    const std::optional<uint8_t> byte_class = grammar_.classes_at(at).only();
    return byte_class ? byte_of_[*byte_class] : std::nullopt;
  }

  // What an alternative spells out goes in as few tokens as cover it, byte for byte.
  void find_steps(Position first) {
    const Position end = end_of(first);
    text_.assign(end - first, 0);
    Position run_end = end;
    for (Position at = end; at-- > first;) {
      if (grammar_.at_rule(at)) {
        run_end = at;
        continue;
      }
      const std::optional<uint8_t> byte = byte_at(at);
      if (!byte.has_value()) {
        run_end = at;
        steps_[at] = {grammar_.classes_at(at).meets(spelt_) ? 1 : kNeverEnds, at + 1};
        continue;
      }
      text_[at - first] = *byte;
      steps_[at] = {kNeverEnds, run_end};
      const auto rest = std::span(text_).subspan(at - first, run_end - at);
      tokens_.each_beginning(rest, [&](size_t length) {
        const Position to = at + static_cast<Position>(length);
        const uint32_t tokens = sum(1, to == run_end ? 0 : steps_[to].tokens);
        steps_[at].tokens = std::min(steps_[at].tokens, tokens);
      });
    }
  }

  bool look_at_rule(uint32_t rule) {
    uint32_t best = kNeverEnds;
    for (const Position first : grammar_.alternatives_of(rule)) {
      look_at(first);
      best = std::min(best, least_[first]);
    }
    const bool better = best < rules_[rule];
    rules_[rule] = best;
    return better;
  }

  void look_at(Position first) {
    const Position end = end_of(first);
    least_[end] = 0;
    for (Position at = end; at-- > first;) {
      least_[at] = grammar_.at_rule(at) ? sum(rules_[grammar_.rule_at(at)], least_[at + 1])
                                        : sum(steps_[at].tokens, least_[steps_[at].to]);
    }
  }

  const Grammar& grammar_;
  const TokenFinder tokens_;
  std::vector<Step> steps_;
  std::vector<uint32_t> least_;
  std::vector<uint32_t> rules_;
  std::array<std::optional<uint8_t>, 256> byte_of_{};  // by class, of those that have but one
  ByteSet spelt_;                                      // classes with a byte that is a token
  std::vector<uint8_t> text_;                          // of an alternative; 0 where it is open
};

}  // namespace

std::vector<uint32_t> least_tokens(const Grammar& grammar, const TokenTrie& trie) {
  return LeastTokens(grammar, trie).find();
}

}  // namespace headrace
