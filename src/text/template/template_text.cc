#include "text/template/template_text.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include <fmt/core.h>
#include <utf8proc.h>

#include "text/utf8.h"

namespace headrace {
namespace {

// Calls visit(step, view) for each character.
template <class Visit>
void for_each_character(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    visit(step, text.substr(0, step.length));
    text.remove_prefix(step.length);
  }
}

utf8proc_category_t category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

void append_mapped(const Utf8Step& step, std::string_view bytes, bool upper, std::string& out) {
  if (step.state != Utf8State::kValid) {
    out.append(bytes);
  } else if (upper && step.code_point == 0xDF) {
    out.append("SS");
  } else {
    const auto code_point = static_cast<utf8proc_int32_t>(step.code_point);
    const auto mapped = upper ? utf8proc_toupper(code_point) : utf8proc_tolower(code_point);
    append_utf8(static_cast<char32_t>(mapped), out);
  }
}

bool is_printable(char32_t code_point) {
  if (code_point == ' ') return true;
  switch (category(code_point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

std::string escape_code(char32_t code_point) {
  const auto code = static_cast<uint32_t>(code_point);
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  return fmt::format("\\U{:08x}", code);
}

}  // namespace

bool is_python_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  if (c == 0x85) return true;
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

std::string_view python_lstrip(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.state != Utf8State::kValid || !is_python_space(step.code_point)) break;
    text.remove_prefix(step.length);
  }
  return text;
}

std::string_view python_rstrip(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 &&
           (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    const Utf8Step step = utf8_step(text.substr(begin));
    const bool whole = step.state == Utf8State::kValid && begin + step.length == text.size();
    if (!whole || !is_python_space(step.code_point)) break;
    text.remove_suffix(step.length);
  }
  return text;
}

std::string_view python_strip(std::string_view text) { return python_lstrip(python_rstrip(text)); }

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> views;
  for_each_character(text,
                     [&](const Utf8Step&, std::string_view bytes) { views.push_back(bytes); });
  return views;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for_each_character(text, [&](const Utf8Step& step, std::string_view bytes) {
    append_mapped(step, bytes, true, out);
  });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for_each_character(text, [&](const Utf8Step& step, std::string_view bytes) {
    append_mapped(step, bytes, false, out);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  bool first = true;
  for_each_character(text, [&](const Utf8Step& step, std::string_view bytes) {
    append_mapped(step, bytes, first, out);
    first = false;
  });
  return out;
}

std::string title_case(std::string_view text) {
  std::string out;
  bool after_letter = false;
  for_each_character(text, [&](const Utf8Step& step, std::string_view bytes) {
    append_mapped(step, bytes, !after_letter, out);
    after_letter = step.state == Utf8State::kValid && is_letter(step.code_point);
  });
  return out;
}

bool is_letter(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

std::vector<std::string_view> split_lines(std::string_view text) {
  const auto ends_line = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  std::vector<std::string_view> lines;
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.state != Utf8State::kValid || !ends_line(step.code_point)) {
      at += step.length;
      continue;
    }
    lines.push_back(text.substr(begin, at - begin));
    at += text.substr(at).starts_with("\r\n") ? 2 : step.length;
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string python_repr(std::string_view text) {
  const bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for_each_character(text, [&](const Utf8Step& step, std::string_view bytes) {
    const char first = bytes[0];
    if (first == quote || first == '\\') {
      out.append("\\").append(bytes);
    } else if (first == '\n') {
      out.append("\\n");
    } else if (first == '\r') {
      out.append("\\r");
    } else if (first == '\t') {
      out.append("\\t");
    } else if (step.state != Utf8State::kValid) {
      for (char byte : bytes) out += escape_code(static_cast<uint8_t>(byte));
    } else if (!is_printable(step.code_point)) {
      out += escape_code(step.code_point);
    } else {
      out.append(bytes);
    }
  });
  out.push_back(quote);
  return out;
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const double magnitude = std::fabs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value, format);
  std::string text(buffer, result.ptr);
  if (plain && text.find('.') == text.npos) text += ".0";
  return text;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return text.npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.npos;
}

}  // namespace headrace
