// A range of characters as sequences of ranges of bytes.
#pragma once

#include <vector>

#include "text/grammar/byte_set.h"
#include "text/grammar/code_point_set.h"

namespace headrace {

// The UTF-8 of a character of `set` is a byte out of each set of one of these sequences.
std::vector<std::vector<ByteSet>> utf8_sequences(const CodePointSet& set);

}  // namespace headrace
