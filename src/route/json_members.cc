#include "route/json_members.h"

#include <algorithm>
#include <charconv>

namespace headrace {

JsonMembers::JsonMembers(std::string_view text) : text_(text) {
  skip_blanks();
  if (at_ < text_.size() && text_[at_] == '{') {
    ++at_;
  } else {
    at_ = text_.size();
  }
}

bool JsonMembers::next() {
  skip_blanks();
  if (at_ < text_.size() && text_[at_] == ',') ++at_;
  skip_blanks();
  if (at_ >= text_.size() || text_[at_] != '"') return false;
  const std::string_view quoted = take_string();
  if (quoted.size() < 2) return false;
  key_ = quoted.substr(1, quoted.size() - 2);
  skip_blanks();
  if (at_ >= text_.size() || text_[at_] != ':') return false;
  ++at_;
  skip_blanks();
  const size_t begin = at_;
  if (!skip_value()) return false;
  value_ = text_.substr(begin, at_ - begin);
  return !value_.empty();
}

void JsonMembers::skip_blanks() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

// With its quotes; empty: it does not end. REQUIRES: at a quote
std::string_view JsonMembers::take_string() {
  const size_t begin = at_++;
  while (true) {
    at_ = text_.find('"', at_);  // memchr: a prompt is long
    if (at_ == text_.npos) {
      at_ = text_.size();
      return {};
    }
    size_t escapes = 0;
    while (text_[at_ - 1 - escapes] == '\\') ++escapes;
    ++at_;
    if (escapes % 2 == 0) return text_.substr(begin, at_ - begin);
  }
}

bool JsonMembers::skip_value() {
  if (at_ >= text_.size()) return false;
  if (text_[at_] == '"') return !take_string().empty();
  if (text_[at_] == '{' || text_[at_] == '[') return skip_nested();
  at_ = std::min(text_.find_first_of(",}] \n\r\t", at_), text_.size());
  return true;
}

bool JsonMembers::skip_nested() {
  size_t depth = 0;
  while (true) {
    at_ = text_.find_first_of("\"{}[]", at_);
    if (at_ == text_.npos) {
      at_ = text_.size();
      return false;
    }
    const char c = text_[at_];
    if (c == '"') {
      if (take_string().empty()) return false;
      continue;
    }
    ++at_;
    depth += c == '{' || c == '[' ? 1 : -1;
    if (depth == 0) return true;
  }
}

std::string_view json_member(std::string_view object, std::string_view key) {
  for (JsonMembers members(object); members.next();) {
    if (members.key() == key) return members.value();
  }
  return {};
}

std::string_view json_string(std::string_view value) {
  if (value.size() < 2 || value.front() != '"') return {};
  return value.substr(1, value.size() - 2);
}

std::optional<long long> json_integer(std::string_view value) {
  long long number = 0;
  const char* const end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, number);
  if (value.empty() || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

}  // namespace headrace
