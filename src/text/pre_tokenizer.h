// Cuts text into the pieces within which byte pairs are merged, by the regular expressions that a
// vocabulary names. PCRE2, compiled to machine code where the machine allows it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headrace {

// Immutable after create(); any thread.
class PreTokenizer {
 public:
  // `name` as in tokenizer.ggml.pre. Unknown names are kUnsupported: a wrong split gives wrong ids
  // without any other sign.
  static Result<PreTokenizer> create(std::string_view name);
  PreTokenizer(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Appends the pieces of `text` in order; joined they are `text`. Bytes that are not UTF-8 form
  // pieces of their own, one for each run. Time is linear: no pattern backtracks over more than
  // one character. Fails (kExhausted) only if PCRE2 runs into its match limit.
  Status split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  class Pattern;
  explicit PreTokenizer(std::vector<std::unique_ptr<Pattern>> stages);
  Status split_stage(size_t stage, std::string_view text,
                     std::vector<std::string_view>& pieces) const;

  // Each stage cuts the pieces of the one before; matches and what lies between them are pieces.
  std::vector<std::unique_ptr<Pattern>> stages_;
};

}  // namespace headrace
