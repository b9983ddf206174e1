#include "text/grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "text/utf8.h"

namespace headrace {
namespace {

// Of characters whose UTF-8 has one length and differs, byte by byte, in whole ranges only.
std::vector<ByteSet> sequence_of(char32_t first, char32_t last) {
  std::string low, high;
  append_utf8(first, low);
  append_utf8(last, high);
  std::vector<ByteSet> sequence;
  for (size_t i = 0; i < low.size(); ++i) {
    sequence.push_back(
        ByteSet::of_range(static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])));
  }
  return sequence;
}

// Cuts [first, last] where lengths change, and where continuation bytes would not take all values.
void split(char32_t first, char32_t last, std::vector<std::vector<ByteSet>>& out) {
  for (const char32_t length_end : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first <= length_end && length_end < last) {
      split(first, length_end, out);
      return split(length_end + 1, last, out);
    }
  }
  if (first > 0x7F) {
    for (const char32_t low_bits : {0x3Fu, 0xFFFu, 0x3FFFFu}) {
      if ((first | low_bits) == (last | low_bits)) continue;
      if ((first & low_bits) != 0) {
        split(first, first | low_bits, out);
        return split((first | low_bits) + 1, last, out);
      }
      if ((last & low_bits) != low_bits) {
        split(first, (last & ~low_bits) - 1, out);
        return split(last & ~low_bits, last, out);
      }
    }
  }
  out.push_back(sequence_of(first, last));
}

}  // namespace

std::vector<std::vector<ByteSet>> utf8_sequences(const CodePointSet& set) {
  std::vector<std::vector<ByteSet>> out;
  for (const CodePointRange& range : set.ranges()) split(range.first, range.last, out);
  return out;
}

}  // namespace headrace
