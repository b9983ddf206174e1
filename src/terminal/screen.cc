#include "terminal/screen.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace headrace {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kEraseRow = "\x1b[K", kEraseBelow = "\x1b[J", kHome = "\x1b[H";

void write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (count <= 0) return;  // a terminal that is gone shows nothing
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

Screen::Screen() {
  ::tcgetattr(STDIN_FILENO, &found_);
  termios raw = found_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  write_all(kEnter);
}

Screen::~Screen() { restore(); }

void Screen::restore() {
  write_all(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &found_);
}

void Screen::draw(const std::string& frame) {
  std::string out(kHome);
  std::string_view rest = frame;
  bool first = true;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    if (!first) out += "\r\n";
    out.append(rest.substr(0, end)).append(kEraseRow);
    first = false;
    if (end == rest.npos) break;
    rest.remove_prefix(end + 1);
  }
  out += kEraseBelow;
  write_all(out);
}

std::optional<char> Screen::wait_for_key(double seconds) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (::poll(&input, 1, static_cast<int>(seconds * 1e3)) <= 0) return std::nullopt;
  char key = 0;
  if (::read(STDIN_FILENO, &key, 1) == 1) return key;
  return 'q';  // nobody is there any more
}

}  // namespace headrace
