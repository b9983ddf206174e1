// Python's notions of text that templates rely on: white space, case, repr, float spelling.
// Positions and lengths are in code points; a byte that is no UTF-8 counts as one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

bool is_python_space(char32_t code_point);  // str.isspace()
std::string_view python_lstrip(std::string_view text);
std::string_view python_rstrip(std::string_view text);
std::string_view python_strip(std::string_view text);

// The characters of `text`, as views of it.
std::vector<std::string_view> characters(std::string_view text);

// Simple case mappings (one code point to one), and ss for sharp s in upper case.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);  // str.capitalize()
std::string title_case(std::string_view text);  // str.title()

bool is_letter(char32_t code_point);   // str.isalpha() of one character
bool is_decimal(char32_t code_point);  // str.isdigit() of one character, decimal digits
bool is_upper(char32_t code_point);
bool is_lower(char32_t code_point);

// str.splitlines(keepends=False)
std::vector<std::string_view> split_lines(std::string_view text);

// repr() of a str: quoted, escaped.
std::string python_repr(std::string_view text);
// repr() of a float: the shortest digits that read back equal.
std::string python_float(double value);

// The first `needle` in `text` at or after `from`, or npos. Linear time, unlike
// std::string_view::find: both are chosen by whoever wrote the template.
size_t find_text(std::string_view text, std::string_view needle, size_t from);

}  // namespace headrace
