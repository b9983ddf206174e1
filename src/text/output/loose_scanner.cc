#include "text/output/loose_scanner.h"

#include <cctype>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/output/call_reader.h"
#include "text/output/json_scanner.h"
#include "text/utf8.h"

namespace headrace {
namespace {

bool is_key_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == '$';
}

}  // namespace

LooseScanner::Step LooseScanner::push(char c, std::string& out) {
  switch (state_) {
    case State::kWord:
      return in_word(c, out);
    case State::kBareKey:
      return bare_key(c, out);
    case State::kString:
      return in_string(c, out);
    case State::kEscape:
    case State::kCode:
      return in_escape(c, out);
    case State::kQuote:
    case State::kQuoted:
      return in_quote(c, out);
    default:
      break;
  }
  if (is_layout_space(c)) return Step::kMore;
  switch (state_) {
    case State::kKeyOrEnd:
      return key_or_end(c, out);
    case State::kColon:
      if (c != separator()) return Step::kBroken;
      out += ": ";
      certain_ = true;
      state_ = State::kValue;
      return Step::kMore;
    case State::kElementOrEnd:
      return c == ']' ? close(c, out) : begin_value(c, out);
    case State::kValue:
      return begin_value(c, out);
    default:
      return behind(c, out);
  }
}

void LooseScanner::begin_element(std::string& out) {
  if (!std::exchange(begun_, true)) out += '{';
  if (std::exchange(comma_, false)) out += ", ";
}

LooseScanner::Step LooseScanner::key_or_end(char c, std::string& out) {
  if (c == ')' || c == '}') return close(c, out);
  begin_element(out);
  is_key_ = true;
  const bool bare = open_.back() == '(' || !python();
  if (bare && is_key_char(c)) {
    word_.assign(1, c);
    state_ = State::kBareKey;
    return Step::kMore;
  }
  if (open_.back() == '(') return Step::kBroken;
  const bool quoted = c == '"' || c == (python() ? '\'' : quote_.front());
  return quoted ? begin_value(c, out) : Step::kBroken;
}

LooseScanner::Step LooseScanner::bare_key(char c, std::string& out) {
  if (is_key_char(c)) {
    word_ += c;
    return word_.size() > kWordBytesMax ? Step::kBroken : Step::kMore;
  }
  append_json_string(out, word_);
  is_key_ = false;
  state_ = State::kColon;
  return push(c, out);
}

LooseScanner::Step LooseScanner::begin_value(char c, std::string& out) {
  const bool is_string = c == '"' || (c == '\'' && python());
  const bool is_quote = !python() && c == quote_.front();
  if (!is_key_) begin_element(out);
  if (is_string || is_quote) {
    out += '"';
    string_quote_ = c;
    word_.clear();
    state_ = is_string ? State::kString : State::kQuote;
    return is_quote ? in_quote(c, out) : Step::kMore;
  }
  if (c == '{' || c == '[') {
    if (open_.size() == kDepthMax) return Step::kBroken;
    open_ += c;
    out += c;
    state_ = c == '{' ? State::kKeyOrEnd : State::kElementOrEnd;
    return Step::kMore;
  }
  word_.clear();
  state_ = State::kWord;
  return in_word(c, out);
}

// A number or a name: up to what ends a value.
LooseScanner::Step LooseScanner::in_word(char c, std::string& out) {
  const bool ends = c == ',' || c == ')' || c == ']' || c == '}';
  if (!ends) {
    if (python() && !is_key_char(c) && c != '+' && !is_layout_space(c)) return Step::kBroken;
    word_ += c;
    return word_.size() > kWordBytesMax ? Step::kBroken : Step::kMore;
  }
  while (!word_.empty() && is_layout_space(word_.back())) word_.pop_back();
  if (!write_word(out)) return Step::kBroken;
  state_ = State::kBehind;
  return behind(c, out);
}

bool LooseScanner::write_word(std::string& out) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"True", "true"}, {"False", "false"}, {"None", "null"},
      {"true", "true"}, {"false", "false"}, {"null", "null"}};
  for (const auto& [word, json] : kWords) {
    if (word_ != word) continue;
    out += json;
    return true;
  }
  const Result<Json> number = parse_json(word_);
  if (number.ok() && number->is_number()) {
    out += word_;
    return true;
  }
  if (python() || word_.empty()) return false;
  append_json_string(out, word_);  // Gemma leaves quotes out now and then
  return true;
}

void LooseScanner::end_string(std::string& out) {
  out += '"';
  state_ = std::exchange(is_key_, false) ? State::kColon : State::kBehind;
}

LooseScanner::Step LooseScanner::in_string(char c, std::string& out) {
  if (c == string_quote_) {
    end_string(out);
  } else if (c == '\\') {
    state_ = State::kEscape;
  } else {
    append_json_escaped(out, c);
  }
  return Step::kMore;
}

LooseScanner::Step LooseScanner::in_escape(char c, std::string& out) {
  if (state_ == State::kCode) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return Step::kBroken;
    word_ += c;
    if (word_.size() < code_digits_) return Step::kMore;
    const unsigned long code = std::stoul(word_, nullptr, 16);
    const bool half_a_pair = code >= 0xD800 && code < 0xE000;
    if (code > 0x10FFFF || (half_a_pair && code_digits_ > 4)) return Step::kBroken;
    if (code < 0x20 || code == '"' || code == '\\') {
      append_json_escaped(out, static_cast<char>(code));
    } else if (code_digits_ == 4) {
      out += "\\u" + word_;  // half a pair may be
    } else {
      append_utf8(static_cast<char32_t>(code), out);
    }
    state_ = State::kString;
    return Step::kMore;
  }
  state_ = State::kString;
  switch (c) {
    case 'n':
      out += "\\n";
      return Step::kMore;
    case 't':
      out += "\\t";
      return Step::kMore;
    case 'r':
      out += "\\r";
      return Step::kMore;
    case 'b':
      out += "\\b";
      return Step::kMore;
    case 'f':
      out += "\\f";
      return Step::kMore;
    case '\n':
      return Step::kMore;  // a line that goes on
    case '\\':
    case '"':
    case '\'':
    case '/':
      append_json_escaped(out, c);
      return Step::kMore;
    case 'x':
    case 'u':
    case 'U':
      code_digits_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      word_.clear();
      state_ = State::kCode;
      return Step::kMore;
    default:
      append_json_escaped(out, '\\');
      append_json_escaped(out, c);
      return Step::kMore;
  }
}

LooseScanner::Step LooseScanner::in_quote(char c, std::string& out) {
  if (state_ == State::kQuote) {
    if (c != quote_[word_.size()]) return Step::kBroken;
    word_ += c;
    if (word_.size() < quote_.size()) return Step::kMore;
    until_quote_.emplace(std::vector<std::string>{std::string(quote_)}, false);
    state_ = State::kQuoted;
    return Step::kMore;
  }
  const StopMatcher::Step step = until_quote_->push({&c, 1});
  for (char byte : step.text) append_json_escaped(out, byte);
  if (step.stop) end_string(out);
  return Step::kMore;
}

LooseScanner::Step LooseScanner::behind(char c, std::string& out) {
  if (c == ')' || c == ']' || c == '}') return close(c, out);
  if (c != ',') return Step::kBroken;
  comma_ = true;
  state_ = open_.back() == '[' ? State::kElementOrEnd : State::kKeyOrEnd;
  return Step::kMore;
}

LooseScanner::Step LooseScanner::close(char c, std::string& out) {
  const char opened = c == ')' ? '(' : c == ']' ? '[' : '{';
  if (open_.back() != opened) return Step::kBroken;
  if (!std::exchange(begun_, true)) out += '{';
  comma_ = false;
  open_.pop_back();
  out += c == ']' ? ']' : '}';
  state_ = State::kBehind;
  if (!open_.empty()) return Step::kMore;
  certain_ = true;
  return Step::kDone;
}

}  // namespace headrace
