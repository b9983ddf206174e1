#include "text/detokenizer.h"

#include "text/utf8.h"

namespace headrace {

std::string Detokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_.is_control(id)) return {};
  tokenizer_.append_token_bytes(id, held_);
  std::string text;
  const size_t incomplete = append_replacing_invalid(held_, text);
  held_.erase(0, held_.size() - incomplete);
  return text;
}

std::string Detokenizer::flush() {
  std::string text(held_.empty() ? std::string_view() : kReplacementCharacter);
  held_.clear();
  return text;
}

}  // namespace headrace
