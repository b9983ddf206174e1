#include "terminal/style.h"

namespace headrace {
namespace {

std::string_view colour_code(Colour colour) {
  switch (colour) {
    case Colour::kDefault:
      return "";
    case Colour::kRed:
      return ";31";
    case Colour::kGreen:
      return ";32";
    case Colour::kYellow:
      return ";33";
    case Colour::kBlue:
      return ";34";
    case Colour::kMagenta:
      return ";35";
    case Colour::kCyan:
      return ";36";
    case Colour::kGrey:
      return ";90";
  }
  return "";
}

// "1;36": from the default style.
std::string style_codes(const Style& style) {
  std::string codes;
  if (style.bold) codes += ";1";
  if (style.dim) codes += ";2";
  if (style.italic) codes += ";3";
  if (style.underline) codes += ";4";
  if (style.struck) codes += ";9";
  codes += colour_code(style.colour);
  return codes.empty() ? codes : codes.substr(1);
}

void append_ansi(std::string& out, std::string_view row, const std::string& codes) {
  if (row.empty()) return;
  if (codes.empty()) {
    out += row;
    return;
  }
  out.append("\x1b[").append(codes).append("m").append(row).append("\x1b[0m");
}

}  // namespace

Style nested_style(const Style& outer, const Style& inner) {
  Style style = outer;
  style.bold |= inner.bold;
  style.italic |= inner.italic;
  style.dim |= inner.dim;
  style.underline |= inner.underline;
  style.struck |= inner.struck;
  if (inner.colour != Colour::kDefault) style.colour = inner.colour;
  return style;
}

void append_styled(StyledTexts& texts, std::string_view text, const Style& style) {
  if (text.empty()) return;
  if (!texts.empty() && texts.back().style == style) {
    texts.back().text += text;
  } else {
    texts.push_back({std::string(text), style});
  }
}

std::string plain_text(const StyledTexts& texts) {
  std::string plain;
  for (const StyledText& each : texts) plain += each.text;
  return plain;
}

std::string ansi_text(const StyledTexts& texts) {
  std::string out;
  for (const StyledText& each : texts) {
    const std::string codes = style_codes(each.style);
    std::string_view rest = each.text;
    for (size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
      append_ansi(out, rest.substr(0, end), codes);
      out += '\n';
      rest.remove_prefix(end + 1);
    }
    append_ansi(out, rest, codes);
  }
  return out;
}

}  // namespace headrace
