// The tokens whose text holds one of some strings: over them no repetition goes (the sequence
// breakers of DRY). Worked out once for a list of strings.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace headrace {

// Any thread, but not the engine's: a new list takes milliseconds.
class BreakTokens {
 public:
  explicit BreakTokens(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}  // outlives it

  // Ascending. A string that only several tokens together spell is in none of them.
  std::shared_ptr<const std::vector<TokenId>> find(const std::vector<std::string>& strings);

 private:
  using Tokens = std::shared_ptr<const std::vector<TokenId>>;
  static constexpr size_t kListsMax = 8;

  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::list<std::pair<std::vector<std::string>, Tokens>> lists_;  // the latest first
};

}  // namespace headrace
