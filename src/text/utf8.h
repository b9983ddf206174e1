// UTF-8 as the Unicode standard defines it (chapter 3, table 3-7): no overlong forms, no
// surrogates, nothing above U+10FFFF. Ill-formed bytes are grouped into maximal subparts
// (section 3.9, U+FFFD substitution), as Python's bytes.decode("utf-8", "replace") does.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headrace {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8State {
  kValid,       // `length` bytes are the character `code_point`
  kInvalid,     // `length` bytes are one maximal subpart that is no character
  kIncomplete,  // all bytes that are left could begin a character
};

struct Utf8Step {
  Utf8State state;
  size_t length;
  char32_t code_point;  // kValid only
};

// Looks at the start of `bytes`. REQUIRES: !bytes.empty()
Utf8Step utf8_step(std::string_view bytes);

// The length of the longest prefix that is well-formed.
size_t valid_utf8_prefix(std::string_view bytes);

// Appends `bytes` with each maximal subpart that is no character replaced by U+FFFD. Returns how
// many bytes at the end were left out because they could begin a character.
size_t append_replacing_invalid(std::string_view bytes, std::string& out);

// As above, the incomplete rest replaced too.
std::string replace_invalid_utf8(std::string_view bytes);

// REQUIRES: code_point <= 0x10FFFF
void append_utf8(char32_t code_point, std::string& out);

// Characters in well-formed text.
size_t count_code_points(std::string_view text);

}  // namespace headrace
