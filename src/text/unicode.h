// Properties and normal forms of characters, from utf8proc (Unicode 15).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Unicode's White_Space.
bool is_white_space(char32_t code_point);
// Alphabetic, marks, decimal digits, connector punctuation: what \w of regular expressions is.
bool is_word_character(char32_t code_point);
// General category M.
bool is_mark(char32_t code_point);
// General category Mn.
bool is_nonspacing_mark(char32_t code_point);
// General category C but unassigned ones: controls, formats, private use.
bool is_no_text(char32_t code_point);

// The bytes of the extended grapheme cluster that `text` begins with (Unicode standard annex 29).
// REQUIRES: well-formed UTF-8, not empty
size_t grapheme_length(std::string_view text);

// Appends the lower case of one character, which may be two.
void append_lower(char32_t code_point, std::string& out);

// `text` in a normal form (Unicode standard annex 15). O(n log n), also for long runs of marks.
// REQUIRES: well-formed UTF-8, size() < 2^31
std::string normalize(std::string_view text, UnicodeForm form);

}  // namespace headrace
