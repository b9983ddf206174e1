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

}  // namespace headrace
