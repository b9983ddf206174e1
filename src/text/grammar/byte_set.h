// A set of bytes.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace headrace {

class ByteSet {
 public:
  constexpr ByteSet() = default;
  static constexpr ByteSet of_range(uint8_t first, uint8_t last) {
    ByteSet set;
    set.add_range(first, last);
    return set;
  }

  constexpr void add(uint8_t byte) { words_[byte / 64] |= uint64_t{1} << (byte % 64); }
  constexpr void add_range(uint8_t first, uint8_t last) {
    for (int byte = first; byte <= last; ++byte) add(static_cast<uint8_t>(byte));
  }
  constexpr void remove(uint8_t byte) { words_[byte / 64] &= ~(uint64_t{1} << (byte % 64)); }
  constexpr bool has(uint8_t byte) const { return words_[byte / 64] >> (byte % 64) & 1; }
  constexpr bool empty() const { return *this == ByteSet(); }

  friend auto operator<=>(const ByteSet&, const ByteSet&) = default;

 private:
  std::array<uint64_t, 4> words_{};
};

}  // namespace headrace
