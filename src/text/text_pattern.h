// What a tokenizer's step looks for in a text: a literal string or a regular expression. PCRE2,
// compiled to machine code where the machine allows it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/tokenizer_recipe.h"

namespace headrace {

// Immutable after create(); any thread.
class TextPattern {
 public:
  // Regular expressions are in PCRE2's own syntax, UTF mode, without PCRE2_UCP (\s, \d and \w are
  // ASCII: patterns here spell out the Unicode sets). kUnsupported where PCRE2 does not take one.
  static Result<TextPattern> create(const PatternSource& source);
  TextPattern(TextPattern&&) noexcept;
  TextPattern& operator=(TextPattern&&) noexcept;
  ~TextPattern();

  // Calls emit(piece, matched) for matches and the gaps between them, in order; none is empty but
  // a match may be, where the pattern matches nothing. `text` is well-formed UTF-8. kExhausted
  // where PCRE2 runs into its match limit; an error of emit() ends it and comes back.
  using Emit = std::function<Status(std::string_view piece, bool matched)>;
  Status for_each(std::string_view text, const Emit& emit) const;

 private:
  struct Compiled;
  explicit TextPattern(std::unique_ptr<Compiled> compiled);
  Status for_each_literal(std::string_view text, const Emit& emit) const;

  std::string literal_;
  std::unique_ptr<Compiled> compiled_;  // nullptr: literal_
};

}  // namespace headrace
