// Cuts text into the pieces that a tokenizer's model encodes, by the steps of a recipe.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/text_pattern.h"
#include "text/tokenizer_recipe.h"

namespace headrace {

// Takes the pieces in order; none is empty. An error ends it.
using PieceSink = std::function<Status(std::string_view piece)>;

// Immutable after create(); any thread.
class PreTokenizer {
 public:
  // kUnsupported where a regular expression is not one.
  static Result<PreTokenizer> create(const std::vector<PreTokenizerStep>& steps);
  PreTokenizer(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Hands the pieces of `text`, which is well-formed UTF-8, to `sink`, each as soon as it is known:
  // no list of them is kept. kExhausted where PCRE2 runs into its match limit; errors of `sink`.
  Status split(std::string_view text, TextPlace place, const PieceSink& sink) const;

 private:
  struct Piece {
    std::string_view text;
    TextPlace place;  // of the text that it is cut from
    bool is_first;    // it begins that text
  };
  class Step;
  class SplitStep;
  class SpaceSpellingStep;
  class PrefixSpaceStep;
  explicit PreTokenizer(std::vector<std::unique_ptr<Step>> steps);
  Status split_from(size_t step, const Piece& piece, const PieceSink& sink) const;

  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace headrace
