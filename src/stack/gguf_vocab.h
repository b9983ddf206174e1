// The vocabulary of a GGUF file (keys tokenizer.*) as the value that text/ takes.
#pragma once

#include <memory>

#include "base/status.h"
#include "text/vocab.h"
#include "weights/gguf.h"

namespace headrace {

// Views into the file, which `storage` keeps alive. Errors: "file: key: what".
Result<Vocab> vocab_from_gguf(const GgufFile& file, std::shared_ptr<const void> storage);

}  // namespace headrace
