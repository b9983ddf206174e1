#include "text/output/json_scanner.h"

#include <utility>

#include <fmt/format.h>

#include "text/output/call_reader.h"

namespace headrace {
namespace {

bool is_json_digit(char c) { return c >= '0' && c <= '9'; }
bool is_json_hex_digit(char c) {
  return is_json_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

void append_json_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      if (static_cast<unsigned char>(c) >= 0x20) {
        out += c;
      } else {
        out += fmt::format("\\u{:04x}", static_cast<int>(c));
      }
  }
}

JsonScanner::Step JsonScanner::push(char c, std::string& out) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return in_string(c, out);
    case State::kWord:
      if (c != word_.front()) return Step::kBroken;
      out += c;
      word_.remove_prefix(1);
      return word_.empty() ? value_ends() : Step::kMore;
    case State::kMinus:
    case State::kZero:
    case State::kInteger:
    case State::kPoint:
    case State::kFraction:
    case State::kE:
    case State::kESign:
    case State::kExponent:
      return in_number(c, out);
    default:
      break;
  }
  if (is_layout_space(c)) {
    if (comma_.empty()) {
      out += c;
    } else if (comma_.size() < kCommaBytesMax) {
      comma_ += c;
    }
    return Step::kMore;
  }
  if (state_ == State::kBehind) return behind_value(c, out);
  if (state_ == State::kColon) {
    if (c != ':') return Step::kBroken;
    out += c;
    state_ = State::kValue;
    return Step::kMore;
  }
  if ((c == '}' && state_ == State::kKeyOrEnd) || (c == ']' && state_ == State::kElementOrEnd)) {
    comma_.clear();
    return close(c, out);
  }
  out += std::exchange(comma_, {});
  if (state_ != State::kKeyOrEnd) return begin_value(c, out);
  if (c != '"') return Step::kBroken;
  is_key_ = true;
  out += c;
  state_ = State::kString;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::begin_value(char c, std::string& out) {
  const bool opens = c == '{' || c == '[';
  if (opens && open_.size() == kDepthMax) return Step::kBroken;
  out += c;
  if (opens) {
    open_ += c;
    state_ = c == '{' ? State::kKeyOrEnd : State::kElementOrEnd;
    return Step::kMore;
  }
  if (c == '"') {
    is_key_ = false;
    state_ = State::kString;
    return Step::kMore;
  }
  for (std::string_view word : {"true", "false", "null"}) {
    if (c != word[0]) continue;
    word_ = word.substr(1);
    state_ = State::kWord;
    return Step::kMore;
  }
  if (c != '-' && !is_json_digit(c)) {
    out.pop_back();
    return Step::kBroken;
  }
  state_ = c == '-' ? State::kMinus : c == '0' ? State::kZero : State::kInteger;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::in_string(char c, std::string& out) {
  if (state_ == State::kHex) {
    if (!is_json_hex_digit(c)) return Step::kBroken;
    if (--hex_left_ == 0) state_ = State::kString;
  } else if (state_ == State::kEscape) {
    if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) return Step::kBroken;
    hex_left_ = 4;
    state_ = c == 'u' ? State::kHex : State::kString;
  } else if (c == '"') {
    out += c;
    if (!is_key_) return value_ends();
    state_ = State::kColon;
    return Step::kMore;
  } else if (c == '\\') {
    state_ = State::kEscape;
  } else {
    append_json_escaped(out, c);
    return Step::kMore;
  }
  out += c;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::in_number(char c, std::string& out) {
  const auto go = [&](State next) {
    state_ = next;
    out += c;
    return Step::kMore;
  };
  const bool integer = state_ == State::kZero || state_ == State::kInteger;
  const bool whole = integer || state_ == State::kFraction || state_ == State::kExponent;
  if (is_json_digit(c) && state_ != State::kZero) {
    switch (state_) {
      case State::kMinus:
        return go(c == '0' ? State::kZero : State::kInteger);
      case State::kPoint:
        return go(State::kFraction);
      case State::kE:
      case State::kESign:
        return go(State::kExponent);
      default:
        return go(state_);
    }
  }
  if (c == '.' && integer) return go(State::kPoint);
  if ((c == 'e' || c == 'E') && whole && state_ != State::kExponent) return go(State::kE);
  if ((c == '+' || c == '-') && state_ == State::kE) return go(State::kESign);
  if (!whole) return Step::kBroken;
  if (value_ends() == Step::kDone) return Step::kDoneBefore;
  return push(c, out);
}

JsonScanner::Step JsonScanner::behind_value(char c, std::string& out) {
  if (c == '}' || c == ']') return close(c, out);
  if (c != ',') return Step::kBroken;
  comma_ = ",";
  state_ = open_.back() == '{' ? State::kKeyOrEnd : State::kElementOrEnd;
  return Step::kMore;
}

JsonScanner::Step JsonScanner::close(char c, std::string& out) {
  if ((c == '}') != (open_.back() == '{')) return Step::kBroken;
  open_.pop_back();
  out += c;
  return value_ends();
}

JsonScanner::Step JsonScanner::value_ends() {
  state_ = State::kBehind;
  return open_.empty() ? Step::kDone : Step::kMore;
}

}  // namespace headrace
