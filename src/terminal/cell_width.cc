#include "terminal/cell_width.h"

#include <algorithm>

#include <utf8proc.h>

#include "text/unicode.h"
#include "text/utf8.h"

namespace headrace {
namespace {

constexpr char32_t kEmojiPresentation = 0xFE0F;  // variation selector 16
constexpr char32_t kFlagFirst = 0x1F1E6, kFlagLast = 0x1F1FF;

}  // namespace

int cluster_columns(std::string_view cluster) {
  int columns = 0, flags = 0;
  bool emoji = false;
  while (!cluster.empty()) {
    const Utf8Step step = utf8_step(cluster);
    const char32_t c = step.code_point;
    columns = std::max(columns, utf8proc_charwidth(static_cast<utf8proc_int32_t>(c)));
    emoji = emoji || c == kEmojiPresentation;
    if (c >= kFlagFirst && c <= kFlagLast) ++flags;
    cluster.remove_prefix(step.length);
  }
  return flags == 2 || emoji ? 2 : columns;
}

int text_columns(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const size_t length = grapheme_length(text);
    columns += cluster_columns(text.substr(0, length));
    text.remove_prefix(length);
  }
  return columns;
}

std::string_view prefix_of_columns(std::string_view text, int columns) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const std::string_view rest = text.substr(bytes);
    const size_t length = grapheme_length(rest);
    columns -= cluster_columns(rest.substr(0, length));
    if (columns < 0) break;
    bytes += length;
  }
  return text.substr(0, bytes);
}

}  // namespace headrace
