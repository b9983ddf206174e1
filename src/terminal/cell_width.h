// How many columns of a terminal text takes: wide characters take two, marks none.
#pragma once

#include <string_view>

namespace headrace {

// Of one grapheme cluster: its widest character's, or 2 where it is shown as an emoji. REQUIRES:
// well-formed UTF-8, not empty
int cluster_columns(std::string_view cluster);

// Of text without line ends or tabs. REQUIRES: well-formed UTF-8
int text_columns(std::string_view text);

// The longest prefix of whole clusters that takes at most `columns`. REQUIRES: as text_columns()
std::string_view prefix_of_columns(std::string_view text, int columns);

}  // namespace headrace
