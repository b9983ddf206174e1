// Which bytes of a file are there: ranges, kept sorted and apart. Its text is what a download that
// was broken off goes on from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace {

using ByteRange = std::pair<int64_t, int64_t>;  // [first, second)

// One thread.
class ByteRanges {
 public:
  // Joined with what it touches. REQUIRES: 0 <= first <= second
  void add(ByteRange range);
  // How far the file is whole from its beginning on.
  int64_t whole() const { return ranges_.empty() || ranges_[0].first > 0 ? 0 : ranges_[0].second; }
  int64_t total() const;
  // The first range of at most `bytes_max` bytes, below `size`, that is in neither this nor
  // `taken`.
  std::optional<ByteRange> gap(const ByteRanges& taken, int64_t size, int64_t bytes_max) const;
  void remove(ByteRange range);

  // "0-4096 8192-9000"; of a text that is none, or has bytes beyond `size`: empty.
  std::string text() const;
  static ByteRanges parse(std::string_view text, int64_t size);

 private:
  std::vector<ByteRange> ranges_;
};

}  // namespace headrace
