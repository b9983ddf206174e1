// Plots made of characters.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace headrace {

// The area below `values`, two a column (the last ones, at the right), in Braille dots: `rows` rows
// of `columns` characters, the top one first. `top`: the value of the highest dot; more is cut.
std::vector<std::string> braille_plot(std::span<const double> values, int columns, int rows,
                                      double top);

// A bar of `columns` characters, of which `share` (0 to 1) is full, to an eighth of one.
std::string share_bar(double share, int columns);

// The least of 1, 2, 5, 10, 20, ... that is no less than `value`, and than 1.
double round_top(double value);

}  // namespace headrace
