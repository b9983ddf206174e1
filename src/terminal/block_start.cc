#include "terminal/block_start.h"

#include <algorithm>
#include <cctype>

namespace headrace {
namespace {

using Kind = BlockStart::Kind;

constexpr int kIndentMax = 24, kQuotesMax = 8, kTabColumns = 4;
constexpr size_t kNumberDigitsMax = 6;

bool is_blank_character(char c) { return c == ' ' || c == '\t'; }

size_t mark_run(std::string_view text) {
  const size_t end = text.find_first_not_of(text[0]);
  return std::min(end, text.size());
}

// Blanks and ">" in front.
void take_quotes(std::string_view line, BlockStart& start) {
  while (start.length < line.size()) {
    const char c = line[start.length];
    if (c == '>' && start.quotes < kQuotesMax) {
      ++start.quotes;
      start.indent = 0;
    } else if (is_blank_character(c)) {
      start.indent += c == '\t' ? kTabColumns : 1;
    } else {
      break;
    }
    ++start.length;
  }
  // The blank behind ">" belongs to it.
  if (start.quotes > 0) start.indent = std::max(0, start.indent - 1);
  start.indent = std::min(start.indent, kIndentMax);
}

BlockStart of_kind(BlockStart start, Kind kind, size_t mark_bytes) {
  start.kind = kind;
  start.length += mark_bytes;
  return start;
}

// "#", "##", ... and a blank.
BlockStart heading_start(BlockStart start, std::string_view rest, bool complete) {
  const size_t run = mark_run(rest);
  if (run == rest.size() && !complete && run <= 6) return of_kind(start, Kind::kNeedsMore, 0);
  const bool heading = run <= 6 && run < rest.size() && is_blank_character(rest[run]);
  if (!heading) return of_kind(start, Kind::kText, 0);
  start.level = static_cast<int>(run);
  return of_kind(start, Kind::kHeading, run + 1);
}

// A rule, a bullet, or emphasis.
BlockStart dash_start(BlockStart start, std::string_view rest, bool complete) {
  const size_t run = mark_run(rest);
  const bool only_marks =
      std::all_of(rest.begin() + static_cast<ptrdiff_t>(run), rest.end(), is_blank_character);
  const bool makes_rule = rest[0] != '+';
  if (only_marks && makes_rule && run >= 3) {
    return of_kind(start, complete ? Kind::kRule : Kind::kNeedsMore, 0);
  }
  const bool bullet = rest[0] != '_' && run == 1;
  if (run == rest.size() && !complete) return of_kind(start, Kind::kNeedsMore, 0);
  if (!bullet || run == rest.size() || !is_blank_character(rest[run])) {
    return of_kind(start, Kind::kText, 0);
  }
  // The blanks behind it, of which the last may be followed by more.
  const size_t text = rest.find_first_not_of(" \t", run);
  if (text == rest.npos && !complete) return of_kind(start, Kind::kNeedsMore, 0);
  return of_kind(start, Kind::kBullet, std::min(text, rest.size()));
}

// "12. " or "12) "
BlockStart number_start(BlockStart start, std::string_view rest, bool complete) {
  size_t digits = 0;
  while (digits < rest.size() && std::isdigit(static_cast<unsigned char>(rest[digits])) != 0) {
    ++digits;
  }
  const bool long_number = digits > kNumberDigitsMax;
  const std::string_view behind = rest.substr(digits);
  const bool marked = !behind.empty() && (behind[0] == '.' || behind[0] == ')');
  const bool ends_early = behind.empty() || (marked && behind.size() == 1);
  if (ends_early && !complete && !long_number) return of_kind(start, Kind::kNeedsMore, 0);
  if (!marked || long_number || ends_early || !is_blank_character(behind[1])) {
    return of_kind(start, Kind::kText, 0);
  }
  const size_t text = rest.find_first_not_of(" \t", digits + 1);
  if (text == rest.npos && !complete) return of_kind(start, Kind::kNeedsMore, 0);
  start.marker = rest.substr(0, digits + 1);
  return of_kind(start, Kind::kNumber, std::min(text, rest.size()));
}

// Three or more "`" or "~", and what language it is.
BlockStart fence_start(BlockStart start, std::string_view rest, bool complete) {
  const size_t run = mark_run(rest);
  if (run == rest.size() && !complete) return of_kind(start, Kind::kNeedsMore, 0);
  const bool code_span = rest[0] == '`' && rest.find('`', run) != rest.npos;
  if (run < 3 || code_span || start.quotes > 0) return of_kind(start, Kind::kText, 0);
  if (!complete) return of_kind(start, Kind::kNeedsMore, 0);
  start.marker = rest.substr(0, run);
  return of_kind(start, Kind::kFence, run);
}

}  // namespace

BlockStart block_start(std::string_view line, bool complete) {
  BlockStart start;
  take_quotes(line, start);
  const std::string_view rest = line.substr(start.length);
  if (rest.empty()) {
    const Kind kind = start.quotes > 0 ? Kind::kText : Kind::kBlank;
    return of_kind(start, complete ? kind : Kind::kNeedsMore, 0);
  }
  switch (rest[0]) {
    case '#':
      return heading_start(start, rest, complete);
    case '-':
    case '*':
    case '+':
    case '_':
      return dash_start(start, rest, complete);
    case '`':
    case '~':
      return fence_start(start, rest, complete);
    case '|':
      if (start.quotes > 0) return of_kind(start, Kind::kText, 0);
      return of_kind(start, complete ? Kind::kTableRow : Kind::kNeedsMore, 0);
    default:
      break;
  }
  if (std::isdigit(static_cast<unsigned char>(rest[0])) != 0) {
    return number_start(start, rest, complete);
  }
  return of_kind(start, Kind::kText, 0);
}

bool may_close_fence(const BlockStart& fence, std::string_view line, bool complete) {
  const size_t first = std::min(line.find_first_not_of(" \t"), line.size());
  const std::string_view rest = line.substr(first);
  if (rest.empty()) return !complete;
  if (rest[0] != fence.marker[0]) return false;
  const size_t run = mark_run(rest);
  const bool blank_behind = rest.find_first_not_of(" \t", run) == rest.npos;
  return blank_behind && (run >= fence.marker.size() || (run == rest.size() && !complete));
}

}  // namespace headrace
