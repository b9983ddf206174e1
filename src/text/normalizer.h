// The steps of a recipe that turn a text into another before it is cut into pieces.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_recipe.h"

namespace headrace {

// Immutable after create(); any thread.
class Normalizer {
 public:
  // kUnsupported where a regular expression is not one, kCorrupt for a wrong charsmap.
  static Result<Normalizer> create(const std::vector<NormalizerStep>& steps);
  Normalizer(Normalizer&&) noexcept;
  ~Normalizer();

  bool changes_nothing() const { return steps_.empty(); }
  // REQUIRES: `text` is well-formed UTF-8. kExhausted where PCRE2 runs into its match limit.
  Result<std::string> apply(std::string_view text, TextPlace place) const;

 private:
  class Step;
  class ReplaceStep;
  class CharsMapStep;
  class PrependStep;
  class PlainStep;
  static Result<std::unique_ptr<Step>> make_step(const NormalizerStep& step);
  explicit Normalizer(std::vector<std::unique_ptr<Step>> steps);

  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace headrace
