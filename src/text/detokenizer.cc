#include "text/detokenizer.h"

#include <algorithm>

#include "text/utf8.h"

namespace headrace {

std::string Detokenizer::push(TokenId id) {
  const bool skipped = skip_special_ && tokenizer_.is_control(id);
  if (skipped && !std::binary_search(kept_.begin(), kept_.end(), id)) return {};
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
