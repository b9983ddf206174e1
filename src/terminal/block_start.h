// What kind of block a line of markdown begins, from its first characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

struct BlockStart {
  enum class Kind : uint8_t {
    kNeedsMore,  // the next characters decide
    kText,
    kBlank,
    kHeading,
    kBullet,
    kNumber,
    kRule,
    kFence,
    kTableRow,  // where the next line makes it one
  };
  Kind kind = Kind::kNeedsMore;
  size_t length = 0;   // bytes of marks and blanks in front of the line's text
  int indent = 0;      // columns in front of the mark
  int level = 0;       // of a heading, 1 to 6
  int quotes = 0;      // how deep in quotes
  std::string marker;  // "12." of a number; "```" of a fence
};

// `complete`: no character follows in this line. Then it is not kNeedsMore; neither kFence, kRule
// nor kTableRow is told of a line that is not complete.
BlockStart block_start(std::string_view line, bool complete);

// Whether this line of code may close `fence`, or with `complete` does.
bool may_close_fence(const BlockStart& fence, std::string_view line, bool complete);

}  // namespace headrace
