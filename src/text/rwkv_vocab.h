// The vocabulary of RWKV's world models: from its own file, a line a token, and from GGUF files,
// whose tokens are spelled with escapes.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/vocab.h"

namespace headrace {

// Of a text of lines "33 ' ' 1": an id, the token as a literal of Python's, how many bytes it has.
// Ids ascend; 0 is the end of a text. kCorrupt, naming the line.
Result<Vocab> rwkv_world_vocab(std::string_view text);

// Of a GGUF file's (model "rwkv"): its tokens as the bytes that they stand for.
void unescape_rwkv_tokens(Vocab& vocab);

}  // namespace headrace
