// What the terminal of this process can show.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

struct TerminalSize {
  int columns = 80, rows = 24;
};

// Of the terminal behind `file`; of none, the default.
TerminalSize terminal_size(int file);

// Whether `file` is a terminal that obeys escape sequences ($TERM is neither empty nor "dumb"). To
// any other no sequence is written, of whatever kind.
bool knows_sequences(int file);

// Whether it does, and nobody asked for no colours ($NO_COLOR).
bool shows_styles(int file);

// The escape sequence that asks a terminal to take `text` for its clipboard (OSC 52).
std::string clipboard_sequence(std::string_view text);

}  // namespace headrace
