// A whole terminal for one program: its other screen, keys as they are typed. Gives it back as it
// was.
#pragma once

#include <termios.h>

#include <optional>
#include <string>

namespace headrace {

// One in a process, on stdin and stdout, which are terminals.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Shows `frame`, rows that end with newlines, from the top left corner, over what was there:
  // nothing is cleared before it is written over, so that nothing flickers.
  void draw(const std::string& frame);

  // Waits for a key, Ctrl-C among them; empty: none came.
  std::optional<char> wait_for_key(double seconds);

  // For a process about to end. Any thread.
  void restore();

 private:
  termios found_{};
};

}  // namespace headrace
