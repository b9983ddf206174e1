// The tokens by which code models fill in the middle of a text ("FIM"): a prompt is
//   prefix-mark, the text before; suffix-mark, the text behind; middle-mark
// and the answer is what belongs between the two.
#pragma once

#include <optional>
#include <vector>

#include "base/ids.h"
#include "text/vocab.h"

namespace headrace {

struct FillInTokens {
  TokenId prefix = -1, suffix = -1, middle = -1;
  TokenId repository = -1, file = -1;  // in front of a repository's name, of a file's; -1 = none
  std::vector<TokenId> ends;           // that an answer ends with besides the vocabulary's own
};

// By the spellings of Qwen2.5-Coder, StarCoder, DeepSeek-Coder, CodeLlama, CodeGemma and Granite.
// None where one of the three marks is not in the vocabulary.
std::optional<FillInTokens> find_fill_in_tokens(const Vocab& vocab);

}  // namespace headrace
