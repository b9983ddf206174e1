#include "text/break_tokens.h"

#include <algorithm>

namespace headrace {

std::shared_ptr<const std::vector<TokenId>> BreakTokens::find(
    const std::vector<std::string>& strings) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(lists_.begin(), lists_.end(),
                                  [&](const auto& list) { return list.first == strings; });
  if (found != lists_.end()) {
    lists_.splice(lists_.begin(), lists_, found);
    return found->second;
  }
  auto tokens = std::make_shared<std::vector<TokenId>>();
  std::string bytes;
  for (TokenId id = 0; id < tokenizer_.vocab_size(); ++id) {
    bytes.clear();
    tokenizer_.append_token_bytes(id, bytes);
    const bool breaks = std::any_of(strings.begin(), strings.end(), [&](const std::string& string) {
      return bytes.find(string) != bytes.npos;
    });
    if (breaks) tokens->push_back(id);
  }
  lists_.emplace_front(strings, tokens);
  if (lists_.size() > kListsMax) lists_.pop_back();
  return tokens;
}

}  // namespace headrace
