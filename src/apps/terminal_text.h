// Text of a model on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// `text` without the control characters that a terminal would obey (escape sequences can rewrite
// the screen or the clipboard): all of C0 and C1 but newline and tab, and DEL.
std::string terminal_safe(std::string_view text);

// Writes to stdout at once; terminal_safe() where stdout is a terminal.
void write_to_stdout(std::string_view text);

}  // namespace headrace
