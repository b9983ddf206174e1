// A set of bytes.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

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
  constexpr bool meets(const ByteSet& other) const {
    uint64_t both = 0;
    for (size_t i = 0; i < words_.size(); ++i) both |= words_[i] & other.words_[i];
    return both != 0;
  }
  // The byte of a set of one.
  constexpr std::optional<uint8_t> only() const {
    int count = 0, byte = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      count += std::popcount(words_[i]);
      if (words_[i] != 0) byte = static_cast<int>(64 * i) + std::countr_zero(words_[i]);
    }
    if (count != 1) return std::nullopt;
    return static_cast<uint8_t>(byte);
  }

  friend auto operator<=>(const ByteSet&, const ByteSet&) = default;

 private:
  std::array<uint64_t, 4> words_{};
};

}  // namespace headrace
