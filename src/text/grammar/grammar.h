// A context-free grammar over bytes: what every form of an answer (JSON schema, regular expression,
// list of choices, GBNF) becomes. GrammarBuilder has what front ends are written in.
//
// Text is matched byte by byte, so that a token may end in the midst of a character.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/grammar/byte_set.h"
#include "text/grammar/code_point_set.h"

namespace headrace {

struct GrammarSymbol {
  enum class Kind : uint8_t { kBytes, kRule };
  Kind kind;
  uint32_t index;  // of the set, or the rule

  friend auto operator<=>(const GrammarSymbol&, const GrammarSymbol&) = default;
};
// One symbol after the other; empty: nothing.
using GrammarPiece = std::vector<GrammarSymbol>;

// Begins the text of a control token that is a mark of a dialect (token_trie.h). No UTF-8 has it.
inline constexpr uint8_t kMarkByte = 0xFF;

// Immutable; any thread. Every rule can end, none is left-recursive in a way that grows.
class Grammar {
 public:
  // A place in a rule: before a set of bytes, before a rule, or at the rule's end.
  using Position = uint32_t;

  bool at_end(Position at) const { return symbols_[at] == 0; }
  bool at_rule(Position at) const { return (symbols_[at] & 1) != 0; }
  // REQUIRES: at_rule(at)
  uint32_t rule_at(Position at) const { return symbols_[at] >> 1; }
  // The places where the rule's alternatives begin.
  std::span<const Position> alternatives_of(uint32_t rule) const {
    return std::span(alternatives_).subspan(first_[rule], first_[rule + 1] - first_[rule]);
  }
  // REQUIRES: at_rule(at)
  std::span<const Position> alternatives(Position at) const { return alternatives_of(rule_at(at)); }
  // REQUIRES: neither at_end(at) nor at_rule(at), of both
  const ByteSet& classes_at(Position at) const { return class_sets_[(symbols_[at] >> 1) - 1]; }
  bool takes(Position at, uint8_t byte_class) const { return classes_at(at).has(byte_class); }
  // In front of the rule that a whole text is.
  Position start() const { return 0; }
  // Bytes that no set tells apart are one class.
  uint8_t class_of(uint8_t byte) const { return class_of_[byte]; }
  int32_t class_count() const { return class_count_; }
  size_t position_count() const { return symbols_.size(); }
  uint32_t rule_count() const { return static_cast<uint32_t>(first_.size() - 1); }
  // The byte of a class that has no other.
  std::optional<uint8_t> only_byte_of(uint8_t byte_class) const {
    const auto count = std::count(class_of_.begin(), class_of_.end(), byte_class);
    if (count != 1) return std::nullopt;
    return static_cast<uint8_t>(std::find(class_of_.begin(), class_of_.end(), byte_class) -
                                class_of_.begin());
  }

 private:
  friend class GrammarBuilder;
  Grammar() = default;

  // By position: 0 = the end of an alternative, 2 * (set + 1), or 2 * rule + 1.
  std::vector<uint32_t> symbols_;
  std::vector<Position> alternatives_;  // of all rules, one rule after the other
  std::vector<uint32_t> first_;         // [rules + 1]
  std::vector<ByteSet> class_sets_;     // [sets]: of classes
  std::array<uint8_t, 256> class_of_{};
  int32_t class_count_ = 1;
};

// One thread. What is too large is noted, and finish() says so: until then calls have no effect.
class GrammarBuilder {
 public:
  static constexpr size_t kSymbolsMax = size_t{1} << 18;
  static constexpr int32_t kNoLimit = -1;

  // A rule without alternatives, of which more are added; so a rule can refer to itself.
  GrammarPiece declare();
  void add(const GrammarPiece& rule, const GrammarPiece& alternative);

  GrammarPiece bytes(const ByteSet& set);
  GrammarPiece literal(std::string_view text);
  // One character of the set, in UTF-8.
  GrammarPiece character(const CodePointSet& set);
  // Equal choices are one rule.
  GrammarPiece choice(std::span<const GrammarPiece> alternatives);
  GrammarPiece choice(std::initializer_list<GrammarPiece> alternatives) {
    return choice(std::span(alternatives.begin(), alternatives.size()));
  }
  // The same texts as choice(), but what several alternatives have in common in front is read once,
  // so that a matcher follows one reading as long as it can. Alternatives may be rules that were
  // declared: REQUIRES: these have what they will have.
  GrammarPiece left_factored(std::span<const GrammarPiece> alternatives);
  GrammarPiece optional(const GrammarPiece& piece);
  // max: kNoLimit = as often as one likes. REQUIRES: 0 <= min, and min <= max
  GrammarPiece repeat(const GrammarPiece& piece, int64_t min, int64_t max);
  // One of the texts, by a tree of their beginnings.
  GrammarPiece one_of(std::vector<std::string> texts);
  static GrammarPiece join(std::initializer_list<GrammarPiece> pieces);

  bool too_large() const { return symbol_count_ > kSymbolsMax; }
  void note_too_large() { symbol_count_ = kSymbolsMax + 1; }

  // kInvalidArgument: too large, left-recursive, or nothing can match it.
  Result<std::shared_ptr<const Grammar>> finish(const GrammarPiece& root);

 private:
  struct Rule {
    std::vector<GrammarPiece> alternatives;
  };
  GrammarPiece as_one(const GrammarPiece& piece);
  void open_front(GrammarPiece& reversed);
  GrammarPiece take_shared(std::vector<GrammarPiece>& reversed);
  GrammarPiece factor(std::vector<GrammarPiece> reversed, int depth);
  GrammarPiece one_of_sorted(std::span<const std::string> texts, size_t depth);
  void prune();
  std::vector<bool> find_rules(bool may_be_empty) const;
  Status check_left_recursion() const;
  void flatten(Grammar& grammar) const;
  void find_classes(Grammar& grammar) const;

  std::vector<Rule> rules_;
  std::vector<ByteSet> sets_;
  std::map<ByteSet, uint32_t> set_index_;
  std::map<std::vector<CodePointRange>, GrammarPiece> characters_;
  std::map<std::vector<GrammarPiece>, GrammarPiece> choices_;
  std::map<GrammarSymbol, GrammarPiece> endless_;  // repetitions of it, any number of times
  size_t symbol_count_ = 0;
};

}  // namespace headrace
