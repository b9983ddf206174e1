#include "text/template/template_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/core.h>

#include "text/template/template_error.h"
#include "text/template/template_text.h"
#include "text/utf8.h"

namespace headrace {
namespace {

using Kind = TemplateToken::Kind;

// Longest first, so that "//" is not two "/".
constexpr std::array<std::string_view, 25> kOperators = {
    "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
    ">",  "=",  ".",  ":",  "|",  ",",  "(", ")", "[", "]", "{", "}"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }
bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// All line ends as "\n", and one line end at the end of the source dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<TemplateToken> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      if (tag == std::string::npos) {
        push_data(rest());
        advance(source_.size() - at_);
        break;
      }
      lex_tag(tag);
    }
    push(Kind::kEnd);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }
  [[noreturn]] void fail(std::string message) const { template_error(line_, std::move(message)); }

  // Every step forward goes through here, so that line numbers are right.
  void advance(size_t count) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                    source_.begin() + static_cast<ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }
  void skip_spaces() { advance(rest().size() - python_lstrip(rest()).size()); }

  TemplateToken& push(Kind kind, std::string_view text = {}) {
    return tokens_.emplace_back(TemplateToken{kind, line_, std::string(text)});
  }
  void push_data(std::string_view text) {
    if (!text.empty()) push(Kind::kData, text);
  }

  size_t find_tag() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (i + 1 == source_.size()) break;
      const char next = source_[i + 1];
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return std::string::npos;
  }

  // The data before a tag, and the tag itself.
  void lex_tag(size_t tag) {
    const char type = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const std::string_view data = rest().substr(0, tag - at_);
    push_data(strip_before_tag(data, type, sign));
    advance(tag - at_);
    if (type == '%' && lex_raw()) return;
    const int begin_line = line_;
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (type == '#') {
      lex_comment(begin_line);
    } else {
      tokens_.push_back({type == '{' ? Kind::kVariableBegin : Kind::kBlockBegin, begin_line, {}});
      lex_code(type == '{');
    }
  }

  // "-" strips all space before the tag; lstrip_blocks the indentation of a block or comment that
  // stands first in its line.
  std::string_view strip_before_tag(std::string_view data, char type, char sign) const {
    if (sign == '-') return python_rstrip(data);
    if (sign == '+' || type == '{') return data;
    const size_t newline = data.rfind('\n');
    const size_t line_begin = newline == data.npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting()) return data;
    return python_lstrip(data.substr(line_begin)).empty() ? data.substr(0, line_begin) : data;
  }
  bool line_starting() const { return at_ == 0 || source_[at_ - 1] == '\n'; }

  // After a block's or comment's end mark, trim_blocks drops one line end; "-" drops all space,
  // "+" nothing. Returns whether one of "-X", "+X", "X" was there.
  bool take_end(std::string_view mark) {
    if (next_is(mark)) {
      advance(mark.size());
      if (next_is("\n")) advance(1);
      return true;
    }
    if (rest().size() <= mark.size() || rest().substr(1, mark.size()) != mark) return false;
    if (rest()[0] == '-') {
      advance(mark.size() + 1);
      skip_spaces();
      return true;
    }
    if (rest()[0] == '+') {
      advance(mark.size() + 1);
      return true;
    }
    return false;
  }

  void lex_comment(int begin_line) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) template_error(begin_line, "the comment is not closed");
    const bool marked = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    advance(end - (marked ? 1 : 0) - at_);
    take_end("#}");
  }

  // At "{%": takes {% raw %} ... {% endraw %} whole. Returns whether there was one.
  bool lex_raw() {
    size_t length = 0;
    bool strip = false;
    if (!match_word_tag(rest(), "raw", &length, &strip)) return false;
    const int begin_line = line_;
    advance(length);
    if (strip) skip_spaces();
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      bool strip_after = false;
      if (!match_word_tag(std::string_view(source_).substr(tag), "endraw", &length, &strip_after)) {
        continue;
      }
      const char sign = source_[tag + 2];
      push_data(strip_before_tag(rest().substr(0, tag - at_), '%', sign));
      advance(tag + length - at_);
      const char before_mark = source_[at_ - 3];
      if (strip_after) {
        skip_spaces();
      } else if (before_mark != '+' && next_is("\n")) {
        advance(1);
      }
      return true;
    }
    template_error(begin_line, "the raw block is not closed");
  }

  // Whether `text` starts with {% word %}, with any marks; its length, and whether it ends in -%}.
  static bool match_word_tag(std::string_view text, std::string_view word, size_t* length,
                             bool* strip) {
    size_t i = 2;
    const auto skip = [&] {
      while (i < text.size() && is_ascii_space(text[i])) ++i;
    };
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    skip();
    if (text.substr(std::min(i, text.size()), word.size()) != word) return false;
    i += word.size();
    skip();
    *strip = i < text.size() && text[i] == '-';
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (text.substr(std::min(i, text.size()), 2) != "%}") return false;
    *length = i + 2;
    return true;
  }

  // Tokens up to the end mark, which counts only where all brackets are closed.
  void lex_code(bool is_variable) {
    const int begin_line = line_;
    std::string open;
    while (at_ < source_.size()) {
      if (is_ascii_space(source_[at_])) {
        advance(1);
        continue;
      }
      if (open.empty() && (is_variable ? take_variable_end() : take_block_end())) return;
      lex_token(open);
    }
    template_error(begin_line, is_variable ? "'{{' is not closed" : "'{%' is not closed");
  }
  bool take_variable_end() {
    if (!next_is("}}") && !next_is("-}}")) return false;
    push(Kind::kVariableEnd);
    const bool strip = next_is("-");
    advance(strip ? 3 : 2);
    if (strip) skip_spaces();
    return true;
  }
  bool take_block_end() {
    if (!next_is("%}") && !next_is("-%}") && !next_is("+%}")) return false;
    push(Kind::kBlockEnd);
    take_end("%}");
    return true;
  }

  void lex_token(std::string& open) {
    const char c = source_[at_];
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && is_name_part(source_[end])) ++end;
      push(Kind::kName, rest().substr(0, end - at_));
      advance(end - at_);
    } else if (is_digit(c)) {
      lex_number();
    } else if (c == '"' || c == '\'') {
      lex_string(c);
    } else {
      lex_operator(open);
    }
  }

  void lex_operator(std::string& open) {
    for (std::string_view op : kOperators) {
      if (!next_is(op)) continue;
      const char c = op[0];
      if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) fail(fmt::format("unexpected '{}'", c));
        open.pop_back();
      }
      push(Kind::kOperator, op);
      advance(op.size());
      return;
    }
    fail(fmt::format("unexpected character '{}'",
                     std::string(rest().substr(0, utf8_step(rest()).length))));
  }

  // Takes digits of `base` with single underscores between; returns them without.
  std::string take_digits(int base) {
    std::string digits;
    const auto is_base_digit = [&](char c) {
      const int value = is_digit(c)                          ? c - '0'
                        : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                             : 99;
      return value < base;
    };
    while (at_ < source_.size()) {
      const char c = source_[at_];
      const bool joins = c == '_' && at_ + 1 < source_.size() && is_base_digit(source_[at_ + 1]);
      if (!joins && !is_base_digit(c)) break;
      if (!joins) digits.push_back(c);
      advance(1);
    }
    return digits;
  }

  void lex_number() {
    int base = 10;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char mark = static_cast<char>(source_[at_ + 1] | 32);
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    }
    if (base != 10) advance(2);
    std::string digits = take_digits(base);
    const bool dot_follows_dot =
        !tokens_.empty() && tokens_.back().kind == Kind::kOperator && tokens_.back().text == ".";
    bool is_float = false;
    if (base == 10 && !dot_follows_dot) is_float = take_fraction(digits) | take_exponent(digits);
    if (is_float) {
      TemplateToken& token = push(Kind::kFloat);
      std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
      return;
    }
    TemplateToken& token = push(Kind::kInteger);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      fail("the number is not a 64-bit integer");
    }
  }
  bool take_fraction(std::string& digits) {
    if (!next_is(".") || rest().size() < 2 || !is_digit(rest()[1])) return false;
    advance(1);
    digits += "." + take_digits(10);
    return true;
  }
  bool take_exponent(std::string& digits) {
    if (!next_is("e") && !next_is("E")) return false;
    const bool has_sign = rest().size() > 1 && (rest()[1] == '+' || rest()[1] == '-');
    const size_t first = has_sign ? 2 : 1;
    if (rest().size() <= first || !is_digit(rest()[first])) return false;
    digits += "e";
    if (rest()[1] == '-') digits += "-";
    advance(first);
    digits += take_digits(10);
    return true;
  }

  void lex_string(char quote) {
    const int begin_line = line_;
    const size_t begin = at_ + 1;
    size_t end = begin;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) template_error(begin_line, "the string is not closed");
    push(Kind::kString, unescape(std::string_view(source_).substr(begin, end - begin)));
    advance(end + 1 - at_);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    size_t i = 0;
    while (i < text.size()) {
      if (text[i] != '\\') {
        out.push_back(text[i++]);
        continue;
      }
      i = append_escape(text, i + 1, out);
    }
    return out;
  }

  // The escape whose letter is text[i]; returns the index behind it. As Python's string literals.
  size_t append_escape(std::string_view text, size_t i, std::string& out) const {
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char letter = text[i];
    if (const size_t known = kLetters.find(letter); known != kLetters.npos) {
      out.push_back(kMeanings[known]);
      return i + 1;
    }
    if (letter == '\n') return i + 1;
    if (letter == 'x') return append_code(text, i + 1, 2, 16, out);
    if (letter == 'u') return append_code(text, i + 1, 4, 16, out);
    if (letter == 'U') return append_code(text, i + 1, 8, 16, out);
    if (letter >= '0' && letter <= '7') {
      size_t digits = 1;
      while (digits < 3 && i + digits < text.size() && text[i + digits] >= '0' &&
             text[i + digits] <= '7') {
        ++digits;
      }
      return append_code(text, i, digits, 8, out);
    }
    out.push_back('\\');
    return i;
  }
  size_t append_code(std::string_view text, size_t begin, size_t digits, int base,
                     std::string& out) const {
    uint32_t code = 0;
    const std::string_view number = text.substr(std::min(begin, text.size()), digits);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), code, base);
    const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (error != std::errc() || number.size() != digits || end != number.data() + digits ||
        !is_character) {
      fail("a string escape is not a character");
    }
    append_utf8(code, out);
    return begin + digits;
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<TemplateToken> tokens_;
};

}  // namespace

std::vector<TemplateToken> lex_template(std::string_view source) {
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace headrace
