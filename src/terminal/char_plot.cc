#include "terminal/char_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "text/utf8.h"

namespace headrace {
namespace {

constexpr char32_t kBraille = 0x2800, kFullBlock = 0x2588;
constexpr int kDotsHigh = 4;
// Of a column of dots, from the bottom up.
constexpr uint8_t kLeftDots[] = {0x40, 0x04, 0x02, 0x01};
constexpr uint8_t kRightDots[] = {0x80, 0x20, 0x10, 0x08};

// How many dots high; what is more than nothing has one.
int dots_of(double value, int dots_max, double top) {
  if (!(value > 0) || !(top > 0)) return 0;
  const double dots = std::round(value / top * dots_max);
  return static_cast<int>(std::clamp(dots, 1.0, static_cast<double>(dots_max)));
}

}  // namespace

std::vector<std::string> braille_plot(std::span<const double> values, int columns, int rows,
                                      double top) {
  const auto places = static_cast<size_t>(2 * columns);
  if (values.size() > places) values = values.last(places);
  std::vector<int> heights(places - values.size(), 0);
  for (const double value : values) heights.push_back(dots_of(value, kDotsHigh * rows, top));
  std::vector<std::string> plot;
  for (int row = rows - 1; row >= 0; --row) {
    std::string line;
    for (size_t place = 0; place < places; place += 2) {
      char32_t dots = kBraille;
      for (int dot = 0; dot < kDotsHigh; ++dot) {
        const int height = row * kDotsHigh + dot;
        if (heights[place] > height) dots |= kLeftDots[dot];
        if (heights[place + 1] > height) dots |= kRightDots[dot];
      }
      append_utf8(dots, line);
    }
    plot.push_back(std::move(line));
  }
  return plot;
}

std::string share_bar(double share, int columns) {
  const int eighths = static_cast<int>(std::round(std::clamp(share, 0.0, 1.0) * columns * 8));
  std::string bar;
  for (int column = 0; column < columns; ++column) {
    const int full = std::clamp(eighths - 8 * column, 0, 8);
    // A full block, or the left eighths of one.
    append_utf8(full == 0 ? U'·' : kFullBlock + static_cast<char32_t>(8 - full), bar);
  }
  return bar;
}

double round_top(double value) {
  double top = 1;
  while (top < value && std::isfinite(top)) {
    for (const double factor : {2.0, 2.5, 2.0}) {
      if (top < value) top *= factor;
    }
  }
  return top;
}

}  // namespace headrace
