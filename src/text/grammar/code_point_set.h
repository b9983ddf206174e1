// A set of Unicode characters, as the ranges of a regular expression's class have them.
#pragma once

#include <compare>
#include <vector>

namespace headrace {

inline constexpr char32_t kCodePointMax = 0x10FFFF;

struct CodePointRange {
  char32_t first, last;  // both are in it
  friend auto operator<=>(const CodePointRange&, const CodePointRange&) = default;
};

// Ascending, apart from each other. Surrogates, which no text holds, are never in it.
class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges) {
    for (const CodePointRange& range : ranges) add(range.first, range.last);
  }
  static CodePointSet all() { return {{0, kCodePointMax}}; }

  // REQUIRES: first <= last <= kCodePointMax
  void add(char32_t first, char32_t last);
  void add(const CodePointSet& other);
  CodePointSet complement() const;
  CodePointSet without(const CodePointSet& other) const;

  bool has(char32_t code_point) const;
  const std::vector<CodePointRange>& ranges() const { return ranges_; }

 private:
  void insert(char32_t first, char32_t last);

  std::vector<CodePointRange> ranges_;
};

}  // namespace headrace
