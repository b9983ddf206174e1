#include "terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace headrace {
namespace {

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = bytes.size() - i < 3 ? bytes.size() - i : 3;
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= count ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

TerminalSize terminal_size(int file) {
  winsize size{};
  TerminalSize found;
  if (::ioctl(file, TIOCGWINSZ, &size) != 0) return found;
  if (size.ws_col > 1) found.columns = size.ws_col;
  if (size.ws_row > 1) found.rows = size.ws_row;
  return found;
}

bool shows_styles(int file) {
  const char* plain = std::getenv("NO_COLOR");
  return knows_sequences(file) && (plain == nullptr || *plain == '\0');
}

bool knows_sequences(int file) {
  if (::isatty(file) != 1) return false;
  const char* kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

std::string clipboard_sequence(std::string_view text) {
  return "\x1b]52;c;" + base64_of(text) + "\x1b\\";
}

}  // namespace headrace
