// The vocabulary and recipe of a Hugging Face folder: tokenizer.json, as HF tokenizers writes it,
// and the files beside it that name special tokens and the chat template.
//
// What a tokenizer.json asks for is done as it says, or refused by name at load (kUnsupported):
// a step that is left out would give wrong ids without any other sign. Models: BPE and Unigram
// (WordPiece and WordLevel are refused).
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/vocab.h"

namespace headrace {

// The files' whole texts; empty = there is no such file.
struct TokenizerFiles {
  std::string_view tokenizer;           // tokenizer.json
  std::string_view tokenizer_config;    // tokenizer_config.json
  std::string_view special_tokens_map;  // special_tokens_map.json
};

// Copies what it needs of the files. The chat template is tokenizer_config's, where it has one
// ("default" of several). Errors: "tokenizer.json: field: what"; kCorrupt or kUnsupported.
// `end_ids` has eos and the known end marks; generation_config.json may name more.
Result<Vocab> vocab_from_tokenizer_json(const TokenizerFiles& files);

}  // namespace headrace
