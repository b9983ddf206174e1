#include "text/grammar/code_point_set.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr char32_t kSurrogateFirst = 0xD800, kSurrogateLast = 0xDFFF;

}  // namespace

void CodePointSet::add(char32_t first, char32_t last) {
  if (first < kSurrogateFirst) insert(first, std::min<char32_t>(last, kSurrogateFirst - 1));
  if (last > kSurrogateLast) insert(std::max<char32_t>(first, kSurrogateLast + 1), last);
}

void CodePointSet::insert(char32_t first, char32_t last) {
  // The ranges that overlap or touch the new one become one with it.
  const auto begin = std::find_if(ranges_.begin(), ranges_.end(), [&](const CodePointRange& range) {
    return range.last + 1 >= first;
  });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), {first, last});
}

void CodePointSet::add(const CodePointSet& other) {
  for (const CodePointRange& range : other.ranges_) insert(range.first, range.last);
}

CodePointSet CodePointSet::complement() const {
  CodePointSet set;
  char32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) set.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kCodePointMax) set.add(next, kCodePointMax);
  return set;
}

CodePointSet CodePointSet::without(const CodePointSet& other) const {
  CodePointSet outside = complement();
  outside.add(other);
  return outside.complement();
}

bool CodePointSet::has(char32_t code_point) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const CodePointRange& range) {
    return range.first <= code_point && code_point <= range.last;
  });
}

}  // namespace headrace
