#include "terminal/inline_markdown.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "text/utf8.h"

namespace headrace {
namespace {

// Longer emphasis is shown before its end is known; other marks are then text.
constexpr size_t kHeldBytesMax = 240;
constexpr std::string_view kMarks = "*_~`[!<\\";
constexpr std::string_view kEscapable = "*_`#~|<>!+-.";
constexpr Style kCodeStyle{.colour = Colour::kCyan};
constexpr Style kLinkStyle{.underline = true, .colour = Colour::kBlue};
constexpr Style kAddressStyle{.dim = true};

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_letter_or_digit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

size_t run_length(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && text[end] == text[at]) ++end;
  return end - at;
}

// Behind the code span that begins at `at`; npos: it does not end here.
size_t code_end(std::string_view text, size_t at) {
  const size_t run = run_length(text, at);
  for (size_t i = at + run; i < text.size();) {
    if (text[i] != '`') {
      ++i;
      continue;
    }
    const size_t length = run_length(text, i);
    if (length == run) return i + run;
    i += length;
  }
  return text.npos;
}

Style emphasis_style(char mark, size_t run) {
  if (mark == '~') return {.struck = true};
  return {.bold = run >= 2, .italic = run != 2};
}

// A run of this many marks opens emphasis between `previous` and `next`.
bool opens(char mark, size_t run, char previous, char next) {
  if (is_blank(next) || run > 3 || (mark == '~' && run != 2)) return false;
  const bool parts_words = mark != '_' && run != 1;
  return parts_words || !is_letter_or_digit(previous);
}

// Where the closing run ends, and how much of it is inside.
struct Closing {
  size_t content_end = 0, end = 0;
};

// Of emphasis of `run` marks at the front of `text`. Empty: there is none yet.
std::optional<Closing> find_closing(std::string_view text, size_t run, bool last) {
  const char mark = text[0];
  for (size_t i = run; i < text.size();) {
    if (text[i] == '`') {
      const size_t end = code_end(text, i);
      if (end == text.npos && !last) return std::nullopt;
      i = end == text.npos ? i + run_length(text, i) : end;
      continue;
    }
    if (text[i] == '\\' && i + 1 < text.size() && kEscapable.find(text[i + 1]) != kEscapable.npos) {
      i += 2;
      continue;
    }
    if (text[i] != mark) {
      ++i;
      continue;
    }
    const size_t length = run_length(text, i), end = i + length;
    if (end == text.size() && !last) return std::nullopt;  // it may be longer
    const bool words_end = end == text.size() || !is_letter_or_digit(text[end]);
    const bool parts_words = mark != '_' && run != 1;
    const bool fits = length == run || (length == 3 && run < 3);
    if (fits && i > run && !is_blank(text[i - 1]) && (words_end || parts_words)) {
      return Closing{.content_end = end - run, .end = end};
    }
    i = end;
  }
  return std::nullopt;
}

}  // namespace

void InlineMarkdown::push(std::string_view characters, const Tell& tell) {
  // One by one: what is decided by how much is held back must not depend on how the text was cut.
  while (!characters.empty()) {
    const size_t length = utf8_step(characters).length;
    held_ += characters.substr(0, length);
    characters.remove_prefix(length);
    tell_known(false, tell);
  }
}

void InlineMarkdown::finish(const Tell& tell) {
  tell_known(true, tell);
  open_.clear();
  previous_ = ' ';
}

void InlineMarkdown::tell_known(bool last, const Tell& tell) {
  while (!held_.empty()) {
    const size_t plain = std::min(held_.find_first_of(kMarks), held_.size());
    if (plain > 0) {
      tell_text(plain, style(), tell);
    } else if (take_front(last, tell) == Held::kNeedsMore) {
      return;
    }
  }
}

InlineMarkdown::Held InlineMarkdown::take_front(bool last, const Tell& tell) {
  switch (held_[0]) {
    case '`':
      return take_code(last, tell);
    case '[':
    case '!':
      return take_link(last, tell);
    case '<':
      return take_address(last, tell);
    case '\\':
      return take_escape(last, tell);
    default:
      return take_emphasis(last, tell);
  }
}

void InlineMarkdown::tell_text(size_t bytes, const Style& style, const Tell& tell) {
  tell(std::string_view(held_).substr(0, bytes), style);
  previous_ = held_[bytes - 1];
  held_.erase(0, bytes);
}

InlineMarkdown::Held InlineMarkdown::take_emphasis(bool last, const Tell& tell) {
  const size_t run = run_length(held_, 0);
  if (run == held_.size() && !last && run < kHeldBytesMax) return Held::kNeedsMore;
  if (close_open(run)) {
    previous_ = held_[run - 1];
    held_.erase(0, run);
    return Held::kTold;
  }
  const char mark = held_[0];
  if (run == held_.size() || !opens(mark, run, previous_, held_[run])) {
    tell_text(run, style(), tell);
    return Held::kTold;
  }
  const std::optional<Closing> closing = find_closing(held_, run, last);
  const Style inner_style = nested_style(style(), emphasis_style(mark, run));
  if (closing) {
    InlineMarkdown inner(inner_style);
    inner.push(std::string_view(held_).substr(run, closing->content_end - run), tell);
    inner.finish(tell);
    previous_ = mark;
    held_.erase(0, closing->end);
    return Held::kTold;
  }
  if (last) {
    tell_text(run, style(), tell);
    return Held::kTold;
  }
  if (held_.size() < kHeldBytesMax) return Held::kNeedsMore;
  open_.push_back({held_.substr(0, run), inner_style});
  previous_ = ' ';
  held_.erase(0, run);
  return Held::kTold;
}

InlineMarkdown::Held InlineMarkdown::take_code(bool last, const Tell& tell) {
  const size_t run = run_length(held_, 0);
  const size_t end = code_end(held_, 0);
  // A closing run at the very end may be longer than it seems.
  if (end == held_.npos || (end == held_.size() && !last)) {
    if (!last && held_.size() < kHeldBytesMax) return Held::kNeedsMore;
  }
  if (end == held_.npos) {
    tell_text(run, style(), tell);
    return Held::kTold;
  }
  std::string_view code = std::string_view(held_).substr(run, end - 2 * run);
  if (code.size() > 2 && code.front() == ' ' && code.back() == ' ') {
    code = code.substr(1, code.size() - 2);
  }
  tell(code, nested_style(style(), kCodeStyle));
  previous_ = '`';
  held_.erase(0, end);
  return Held::kTold;
}

InlineMarkdown::Held InlineMarkdown::take_link(bool last, const Tell& tell) {
  const size_t open = held_[0] == '!' ? 1 : 0;
  const bool more = !last && held_.size() < kHeldBytesMax;
  const auto text = [&] {
    tell_text(1, style(), tell);
    return Held::kTold;
  };
  if (open == held_.size()) return more ? Held::kNeedsMore : text();
  if (held_[open] != '[') return text();
  const size_t close = held_.find(']', open);
  if (close == held_.npos || close + 1 == held_.size()) return more ? Held::kNeedsMore : text();
  if (held_[close + 1] != '(') return text();
  const size_t end = held_.find(')', close);
  if (end == held_.npos) return more ? Held::kNeedsMore : text();
  const std::string label = held_.substr(open + 1, close - open - 1);
  const std::string address = held_.substr(close + 2, end - close - 2);
  InlineMarkdown inner(nested_style(style(), kLinkStyle));
  inner.push(label, tell);
  inner.finish(tell);
  if (address != label) tell(" (" + address + ")", nested_style(style(), kAddressStyle));
  previous_ = ')';
  held_.erase(0, end + 1);
  return Held::kTold;
}

InlineMarkdown::Held InlineMarkdown::take_address(bool last, const Tell& tell) {
  constexpr std::string_view kBegin = "<http";
  const std::string_view begun = std::string_view(held_).substr(0, kBegin.size());
  const size_t end = held_.find_first_of("> ");
  const bool may_be = kBegin.starts_with(begun) || begun == kBegin;
  if (may_be && end == held_.npos && !last && held_.size() < kHeldBytesMax) {
    return Held::kNeedsMore;
  }
  if (begun != kBegin || end == held_.npos || held_[end] != '>') {
    tell_text(1, style(), tell);
    return Held::kTold;
  }
  tell(std::string_view(held_).substr(1, end - 1), nested_style(style(), kLinkStyle));
  previous_ = '>';
  held_.erase(0, end + 1);
  return Held::kTold;
}

InlineMarkdown::Held InlineMarkdown::take_escape(bool last, const Tell& tell) {
  if (held_.size() == 1 && !last) return Held::kNeedsMore;
  const bool escapes = held_.size() > 1 && kEscapable.find(held_[1]) != kEscapable.npos;
  if (escapes) held_.erase(0, 1);
  tell_text(1, style(), tell);
  return Held::kTold;
}

bool InlineMarkdown::close_open(size_t run) {
  if (open_.empty() || is_blank(previous_)) return false;
  if (open_.back().mark != std::string_view(held_).substr(0, run)) return false;
  open_.pop_back();
  return true;
}

Style InlineMarkdown::style() const { return open_.empty() ? base_ : open_.back().style; }

StyledTexts inline_markdown(std::string_view line, Style base) {
  StyledTexts texts;
  InlineMarkdown markdown(base);
  const auto tell = [&texts](std::string_view text, const Style& style) {
    append_styled(texts, text, style);
  };
  markdown.push(line, tell);
  markdown.finish(tell);
  return texts;
}

}  // namespace headrace
