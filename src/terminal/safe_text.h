// Text of a model on its way to a terminal, which would obey some of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headrace {

// `text` without the control characters that a terminal would obey (escape sequences can rewrite
// the screen or the clipboard): all of C0 and C1 but newline and tab, DEL, and those that turn the
// direction of writing, in which code can read otherwise than it is.
std::string terminal_safe(std::string_view text);

// The same as one line of at most `bytes_max` bytes, cut between characters: ends of lines and tabs
// are blanks. For what others say in the middle of a line of ours.
std::string safe_line(std::string_view text, size_t bytes_max);

// The same for text that comes in pieces, wherever they were cut.
class SafeText {
 public:
  // Whole characters that can be told now; bytes that are no UTF-8 are U+FFFD.
  std::string push(std::string_view bytes);
  // What is left of a character that did not end.
  std::string finish();

 private:
  std::string incomplete_;
};

// Writes to stdout at once; terminal_safe() where stdout is a terminal.
void write_to_stdout(std::string_view text);

}  // namespace headrace
