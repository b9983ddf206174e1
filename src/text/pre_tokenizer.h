// Cuts text into the pieces that a tokenizer's model encodes, by the steps of a recipe.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/text_pattern.h"
#include "text/tokenizer_recipe.h"

namespace headrace {

struct Piece {
  std::string_view text;
  bool at_start;  // it begins the whole text
};

// Pieces, and the memory of those that are no part of the text that was cut.
struct Pieces {
  std::vector<Piece> pieces;
  std::deque<std::string> storage;
};

// Immutable after create(); any thread.
class PreTokenizer {
 public:
  // kUnsupported where a regular expression is not one.
  static Result<PreTokenizer> create(const std::vector<PreTokenizerStep>& steps);
  PreTokenizer(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // The pieces of `text`, which is well-formed UTF-8, in order; none is empty. Views into `text` or
  // into the result. kExhausted only where PCRE2 runs into its match limit.
  Result<Pieces> split(std::string_view text, bool at_start) const;

 private:
  class Step;
  class SplitStep;
  class SpaceSpellingStep;
  class PrefixSpaceStep;
  explicit PreTokenizer(std::vector<std::unique_ptr<Step>> steps);

  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace headrace
