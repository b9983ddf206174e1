// Text of HTTP headers and of lines in files: ASCII, whatever the locale.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// Without blanks and line ends (space, tab, CR) at either end.
inline std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

inline std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace headrace
