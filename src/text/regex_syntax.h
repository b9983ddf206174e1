// The regular expressions of tokenizer.json files, which are written for Oniguruma (Ruby's syntax,
// UTF-8), in PCRE2's syntax.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace headrace {

// A pattern for TextPattern that matches what `pattern` matches in Oniguruma: \s, \d, \w and \b are
// Unicode's, `.`, `^` and `$` know only \n, groups capture nothing. kUnsupported, naming the
// construct, for what the two read differently or what can make matching slow: back references,
// conditions, recursion, nested or intersected classes, POSIX classes, options other than i.
Result<std::string> pcre2_from_oniguruma(std::string_view pattern);

}  // namespace headrace
