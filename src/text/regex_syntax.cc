#include "text/regex_syntax.h"

#include <cctype>
#include <cstdint>

#include <fmt/core.h>

#include "text/utf8.h"

namespace headrace {
namespace {

constexpr size_t kPatternBytesMax = size_t{1} << 16;
constexpr int kDepthMax = 100;

// Members of character classes. White_Space and its complement; word characters.
constexpr std::string_view kSpace = "\\x09-\\x0d\\x{85}\\p{Z}";
constexpr std::string_view kNotSpace =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

// Published patterns whose meaning is kept by another one that is linear: \s+$ looks at each space
// of a run in turn, and at all of the run each time.
constexpr std::pair<std::string_view, std::string_view> kLinear[] = {
    {"\\s+$", "(?<![\\x09-\\x0d\\x{85}\\p{Z}])[\\x09-\\x0d\\x{85}\\p{Z}]++(?=\\n|\\z)"},
};

bool is_general_category(std::string_view name) {
  if (name.empty() || name.size() > 2) return false;
  if (std::string_view("LMNPSZC").find(name[0]) == std::string_view::npos) return false;
  return name.size() == 1 || std::islower(static_cast<unsigned char>(name[1])) != 0;
}

bool is_script_name(std::string_view name) {
  if (name.size() < 3 || name.size() > 32) return false;
  for (const char c : name) {
    if (std::isalpha(static_cast<unsigned char>(c)) == 0 && c != '_') return false;
  }
  // Names that Oniguruma takes for classes, not scripts.
  for (const std::string_view other :
       {"Alnum", "Alpha", "Blank", "Cntrl", "Digit", "Graph", "Lower", "Print", "Punct", "Space",
        "Upper", "XDigit", "Word", "ASCII", "Any", "Assigned", "Letter", "Number"}) {
    if (name == other) return false;
  }
  return true;
}

// One pass over the pattern, from left to right.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (!done()) HR_RETURN_IF_ERROR(item());
    if (depth_ > 0) return refuse("a group that does not end");
    return std::move(out_);
  }

 private:
  bool done() const { return at_ == pattern_.size(); }
  std::string_view rest() const { return pattern_.substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  Status refuse(std::string_view what) const {
    return unsupported(fmt::format("regular expression: {} at {} is not supported", what, at_),
                       "pattern");
  }

  Status item() {
    switch (pattern_[at_]) {
      case '\\':
        return escape();
      case '[':
        ++at_;
        return character_class();
      case '(':
        return open_group();
      case ')':
        if (--depth_ < 0) return refuse("')' without '('");
        return put(")");
      case '{':
        return interval();
      case '.':
        return put("[^\\n]");
      case '^':
        return put("(?:\\A|(?<=\\n)(?!\\z))");
      case '$':
        return put("(?:(?=\\n)|(?<!\\n)\\z)");
      default:
        out_ += pattern_[at_++];
        return ok_status();
    }
  }

  // Takes one byte and writes `text` for it.
  Status put(std::string_view text) {
    ++at_;
    out_ += text;
    return ok_status();
  }

  Status open_group() {
    if (++depth_ > kDepthMax) return refuse("deep nesting");
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (!take(kind)) continue;
      out_ += kind;
      return ok_status();
    }
    if (next_is("(?") || next_is("(*")) {
      return refuse(fmt::format("the group '{}'", rest().substr(0, 4)));
    }
    ++at_;
    out_ += "(?:";
    return ok_status();
  }

  // {n}, {n,}, {,m}, {n,m}, lazy or not; anything else is literal.
  Status interval() {
    size_t end = at_ + 1;
    while (end < pattern_.size() &&
           (std::isdigit(static_cast<unsigned char>(pattern_[end])) != 0 || pattern_[end] == ',')) {
      ++end;
    }
    const std::string_view body = pattern_.substr(at_ + 1, end - at_ - 1);
    if (end == pattern_.size() || pattern_[end] != '}' || body.empty() || body == ",") {
      return put("\\{");
    }
    const char suffix = end + 1 < pattern_.size() ? pattern_[end + 1] : '\0';
    if (suffix == '+' || (suffix == '?' && body.find(',') == body.npos)) {
      return refuse("an interval with a suffix");  // a repeat of the repeat, not what it looks like
    }
    out_ += body[0] == ',' ? "{0" : "{";
    out_ += body;
    out_ += '}';
    at_ = end + 1;
    return ok_status();
  }

  Status escape() {
    if (at_ + 1 == pattern_.size()) return refuse("'\\' at the end");
    switch (pattern_[at_ + 1]) {
      case 's':
        return class_escape(fmt::format("[{}]", kSpace));
      case 'S':
        return class_escape(fmt::format("[^{}]", kSpace));
      case 'w':
        return class_escape(fmt::format("[{}]", kWord));
      case 'W':
        return class_escape(fmt::format("[^{}]", kWord));
      case 'b':
        return class_escape(fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord));
      case 'B':
        return class_escape(fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord));
      case 'A':
        return class_escape("\\A");
      case 'z':
        return class_escape("\\z");
      default:
        return common_escape();
    }
  }

  Status class_escape(std::string_view text) {
    ++at_;
    return put(text);
  }

  // Escapes that mean the same inside a class and outside.
  Status common_escape() {
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 'd':
        return class_escape("\\p{Nd}");
      case 'D':
        return class_escape("\\P{Nd}");
      case 'p':
      case 'P':
        return property();
      case 'x':
      case 'u':
        return code_point();
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return class_escape(std::string{'\\', c});
      case 'v':
        return class_escape("\\x0b");
      default:
        break;
    }
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      return refuse(fmt::format("the escape '\\{}'", c));
    }
    const size_t length = utf8_step(pattern_.substr(at_ + 1)).length;
    out_ += pattern_.substr(at_, 1 + length);
    at_ += 1 + length;
    return ok_status();
  }

  // \p{L}, \P{L}, \p{^L}; scripts, which PCRE2 would extend by Script_Extensions.
  Status property() {
    const size_t end = pattern_.find('}', at_);
    if (end == pattern_.npos || pattern_[at_ + 2] != '{')
      return refuse("a property without braces");
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    bool negated = pattern_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool category = is_general_category(name);
    if (!category && !is_script_name(name)) {
      return refuse(fmt::format("the property '{}'", name.substr(0, 32)));
    }
    out_ += fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', category ? "" : "sc:", name);
    at_ = end + 1;
    return ok_status();
  }

  // \xHH below 0x80, \x{H...}, \uHHHH.
  Status code_point() {
    const bool braces = next_is("\\x{");
    const size_t digits_max = braces ? 8 : pattern_[at_ + 1] == 'u' ? 4 : 2;
    size_t at = at_ + (braces ? 3 : 2);
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < digits_max && at < pattern_.size(); ++digits, ++at) {
      const char c = pattern_[at];
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) break;
      value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    const bool whole =
        braces ? digits > 0 && at < pattern_.size() && pattern_[at] == '}' : digits == digits_max;
    const bool byte = !braces && digits_max == 2 && value >= 0x80;
    if (!whole || byte || value > 0x10ffff) return refuse("a character code");
    out_ += fmt::format("\\x{{{:x}}}", value);
    at_ = at + (braces ? 1 : 0);
    return ok_status();
  }

  // Behind the '['.
  Status character_class() {
    out_ += take("^") ? "[^" : "[";
    HR_RETURN_IF_ERROR(class_members(1));
    out_ += ']';
    return ok_status();
  }

  // Up to and with the ']'.
  Status class_members(int depth) {
    if (depth > kDepthMax) return refuse("deep nesting");
    if (next_is("]")) return refuse("an empty class");
    bool after_character = false;  // a '-' would make a range
    while (true) {
      if (done()) return refuse("a class that does not end");
      if (take("]")) return ok_status();
      if (next_is("[:") || next_is("[^") || next_is("&&")) {
        return refuse(fmt::format("'{}' in a class", rest().substr(0, 2)));
      }
      if (take("[")) {  // the union of both
        HR_RETURN_IF_ERROR(class_members(depth + 1));
        after_character = false;
      } else if (next_is("-")) {
        const bool range = after_character && !next_is("-]") && !next_is("-[");
        HR_RETURN_IF_ERROR(put(range ? "-" : "\\-"));
        if (range) HR_RETURN_IF_ERROR(class_member(after_character));
        if (range && !after_character) return refuse("a range to a set");
        after_character = false;
      } else {
        HR_RETURN_IF_ERROR(class_member(after_character));
      }
    }
  }

  // One character or set; sets `is_character`.
  Status class_member(bool& is_character) {
    is_character = false;
    if (done()) return refuse("a class that does not end");
    if (pattern_[at_] != '\\') {
      is_character = true;
      const size_t length = utf8_step(rest()).length;
      out_ += rest().substr(0, length);
      at_ += length;
      return ok_status();
    }
    if (at_ + 1 == pattern_.size()) return refuse("'\\' at the end");
    switch (pattern_[at_ + 1]) {
      case 's':
        return class_escape(kSpace);
      case 'S':
        return class_escape(kNotSpace);
      case 'w':
        return class_escape(kWord);
      case 'W':
      case 'B':
        return refuse("a negated word set in a class");
      case 'b':
        is_character = true;
        return class_escape("\\x08");
      case 'd':
      case 'D':
      case 'p':
      case 'P':
        return common_escape();
      default:
        is_character = true;
        return common_escape();
    }
  }

  std::string_view pattern_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> pcre2_from_oniguruma(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return unsupported(fmt::format("a regular expression of {} bytes, more than {}", pattern.size(),
                                   kPatternBytesMax),
                       "pattern");
  }
  if (valid_utf8_prefix(pattern) != pattern.size()) {
    return corrupt("a regular expression is not UTF-8", "pattern");
  }
  for (const auto& [published, linear] : kLinear) {
    if (pattern == published) return std::string(linear);
  }
  return Translator(pattern).run();
}

}  // namespace headrace
