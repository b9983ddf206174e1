// Text with the look that it has on a terminal: what renderers make, and a terminal shows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// Of the terminal's own palette, so that a person's theme decides what they look like.
enum class Colour : uint8_t { kDefault, kRed, kGreen, kYellow, kBlue, kMagenta, kCyan, kGrey };

struct Style {
  bool bold = false, italic = false, dim = false, underline = false, struck = false;
  Colour colour = Colour::kDefault;

  friend bool operator==(const Style&, const Style&) = default;
};

// `inner` inside of `outer`: what either has; the inner one's colour before the outer one's.
Style nested_style(const Style& outer, const Style& inner);

struct StyledText {
  std::string text;  // '\n' ends a row
  Style style;
};
using StyledTexts = std::vector<StyledText>;

// Neighbours of one style are one text.
void append_styled(StyledTexts& texts, std::string_view text, const Style& style);

// The texts alone.
std::string plain_text(const StyledTexts& texts);

// With the escape sequences (SGR, ECMA-48) of their styles. Ends in the default style, and has it
// at the end of each row.
std::string ansi_text(const StyledTexts& texts);

}  // namespace headrace
