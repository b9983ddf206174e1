// Vocabularies for tests and fuzz targets.
#pragma once

#include <string>
#include <string_view>

#include "text/vocab.h"

namespace headrace {

// Reads "KIND TOKEN" lines, an empty line, then merges "LEFT RIGHT", each of which makes the next
// token id. `text` is copied into the vocabulary's storage.
Vocab vocab_from_text(std::string_view text, std::string pre);

// SmolLM2's vocabulary (tests/data/text/smollm2_bpe.txt). Run from the source root.
Vocab smollm2_vocab();

// 4 control tokens, 1 user-defined, the 256 bytes, and a few dozen merges: every byte survives
// encode and decode. BOS is added.
Vocab tiny_vocab();

// A SentencePiece vocabulary of "llama" (scores by rank) or "t5" (log-probabilities): unknown, two
// control tokens, <tool>, the 256 byte tokens, U+2581, and texts over a, b, c, d of up to 4
// letters. No BOS, no space in front.
Vocab sentence_piece_vocab(std::string model);

// A file of tests/data/text/tokenizers. Run from the source root.
std::string family_file(const std::string& name);

}  // namespace headrace
