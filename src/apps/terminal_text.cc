#include "apps/terminal_text.h"

#include <unistd.h>

#include <cstdio>

namespace headrace {
namespace {

// Bytes of the control character at the front of `text`; 0 when there is none.
size_t control_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first == '\n' || first == '\t') return 0;
  if (first < 0x20 || first == 0x7f) return 1;
  const bool c1 = first == 0xc2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xa0;
  return c1 ? 2 : 0;
}

}  // namespace

std::string terminal_safe(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const size_t control = control_length(text);
    if (control == 0) safe += text[0];
    text.remove_prefix(control == 0 ? 1 : control);
  }
  return safe;
}

void write_to_stdout(std::string_view text) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  const std::string safe = terminal ? terminal_safe(text) : std::string(text);
  std::fwrite(safe.data(), 1, safe.size(), stdout);
  std::fflush(stdout);
}

}  // namespace headrace
