// The parts of JSON (RFC 8259) as a grammar, in the spelling that models like: compact, with white
// space of a bounded size where people put it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/grammar/grammar.h"

namespace headrace {

// A bound of a number. JSON schema's minimum and exclusiveMinimum, or those for the other end.
struct NumberBound {
  int64_t value;
  bool exclusive = false;
};

// One thread, as the builder.
class JsonGrammar {
 public:
  // `coded`: ASCII characters that stand in strings by their code alone, as \u003c, where the text
  // around the JSON would take them for its own. `python_words`: True, False and None may stand for
  // JSON's words.
  explicit JsonGrammar(GrammarBuilder& builder, CodePointSet coded = {}, bool python_words = false);

  // Nothing, a space, or one or two line breaks with up to 20 blanks.
  const GrammarPiece& space() const { return space_; }
  // Any value, of which numbers have at most 16 digits in front of the point and behind it.
  const GrammarPiece& value() const { return value_; }
  const GrammarPiece& object() const { return object_; }
  const GrammarPiece& array() const { return array_; }
  const GrammarPiece& string() const { return string_; }

  // One character of the set inside of a string, spelled with an escape where it must be.
  GrammarPiece character(const CodePointSet& set);
  // A string of so many characters; max: GrammarBuilder::kNoLimit.
  GrammarPiece string(int64_t min, int64_t max);
  GrammarPiece quoted(const GrammarPiece& characters);
  // A string that is none of `names`, nor another spelling of one.
  GrammarPiece string_but(std::vector<std::string> names);
  // Exactly this value, without white space.
  GrammarPiece literal(const Json& value) { return builder_.literal(text_of(value)); }
  std::string text_of(const Json& value) const;
  GrammarPiece null();
  GrammarPiece boolean();

  // "key": value
  GrammarPiece member(const GrammarPiece& key, const GrammarPiece& value);
  GrammarPiece object_of(const GrammarPiece& members);  // empty members: an empty object
  GrammarPiece list_of(const GrammarPiece& items);
  GrammarPiece comma();

  GrammarPiece number(std::optional<NumberBound> low, std::optional<NumberBound> high);
  GrammarPiece integer(std::optional<NumberBound> low, std::optional<NumberBound> high);

  // Of a bound's value.
  static constexpr int64_t kNumberMax = 999'999'999'999'999;

 private:
  std::string coded_text(std::string text) const;
  GrammarPiece escape();
  GrammarPiece any_character();
  GrammarPiece string_but_sorted(std::span<const std::string> names, size_t depth);
  GrammarPiece digits_between(std::string_view low, std::string_view high);
  GrammarPiece integers_between(int64_t low, int64_t high);
  GrammarPiece digits_above_zero(int64_t most);
  GrammarPiece magnitudes(NumberBound low, std::optional<NumberBound> high, bool fractions);
  GrammarPiece bounded(std::optional<NumberBound> low, std::optional<NumberBound> high,
                       bool fractions);

  GrammarBuilder& builder_;
  const CodePointSet coded_;
  const bool python_words_;
  const CodePointSet escaped_;  // those that no string holds plainly
  GrammarPiece space_, value_, object_, array_, string_, character_;
};

}  // namespace headrace
