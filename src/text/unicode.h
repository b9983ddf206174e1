// Properties and normal forms of characters, from utf8proc (Unicode 15).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Unicode's White_Space.
bool is_white_space(char32_t code_point);
// General category M.
bool is_mark(char32_t code_point);

// Appends the lower case of one character, which may be two.
void append_lower(char32_t code_point, std::string& out);

// `text` in a normal form (Unicode standard annex 15). O(n log n), also for long runs of marks.
// REQUIRES: well-formed UTF-8, size() < 2^31
std::string normalize(std::string_view text, UnicodeForm form);

}  // namespace headrace
