#include "hub/byte_ranges.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "hub/hub_answer.h"

namespace headrace {

void ByteRanges::add(ByteRange range) {
  CHECK(range.first >= 0 && range.first <= range.second);
  if (range.first == range.second) return;
  std::vector<ByteRange> joined;
  for (const ByteRange& each : ranges_) {
    if (each.second < range.first || each.first > range.second) {
      joined.push_back(each);
    } else {
      range = {std::min(range.first, each.first), std::max(range.second, each.second)};
    }
  }
  joined.push_back(range);
  std::sort(joined.begin(), joined.end());
  ranges_ = std::move(joined);
}

void ByteRanges::remove(ByteRange range) {
  if (range.first >= range.second) return;
  std::vector<ByteRange> left;
  for (const ByteRange& each : ranges_) {
    if (const int64_t end = std::min(each.second, range.first); each.first < end) {
      left.emplace_back(each.first, end);
    }
    if (const int64_t begin = std::max(each.first, range.second); begin < each.second) {
      left.emplace_back(begin, each.second);
    }
  }
  ranges_ = std::move(left);
}

int64_t ByteRanges::total() const {
  int64_t bytes = 0;
  for (const ByteRange& each : ranges_) bytes += each.second - each.first;
  return bytes;
}

std::optional<ByteRange> ByteRanges::gap(const ByteRanges& taken, int64_t size,
                                         int64_t bytes_max) const {
  ByteRanges both = *this;
  for (const ByteRange& each : taken.ranges_) both.add(each);
  int64_t begin = 0;
  for (const ByteRange& each : both.ranges_) {
    if (each.first > begin) {
      return ByteRange{begin, std::min({each.first, begin + bytes_max, size})};
    }
    begin = each.second;
  }
  if (begin >= size) return std::nullopt;
  return ByteRange{begin, std::min(begin + bytes_max, size)};
}

std::string ByteRanges::text() const {
  std::string text;
  for (const ByteRange& each : ranges_) text += fmt::format("{}-{} ", each.first, each.second);
  return text;
}

ByteRanges ByteRanges::parse(std::string_view text, int64_t size) {
  ByteRanges ranges;
  for (size_t blank = text.find(' '); blank != text.npos; blank = text.find(' ')) {
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(blank + 1);
    const size_t dash = word.find('-');
    if (dash == word.npos) return {};
    const auto first = whole_number(word.substr(0, dash));
    const auto second = whole_number(word.substr(dash + 1));
    if (!first || !second || *first > *second || *second > size) return {};
    ranges.add({*first, *second});
  }
  return ranges;
}

}  // namespace headrace
