// Lines that a person types: edited and with history on a terminal (libedit), plain otherwise.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace headrace {

// One in a process; one thread.
class LineReader {
 public:
  enum class Event {
    kLine,
    kInterrupt,       // Ctrl-C: what was typed is gone
    kInterruptEmpty,  // Ctrl-C, and nothing was typed
    kEnd,             // Ctrl-D on an empty line, or the end of the input
  };

  // `history_path`: read now, each line that is entered is appended (mode 0600); empty: none is
  // kept. `words`: what Tab completes at the beginning of a line.
  static std::unique_ptr<LineReader> create(const std::string& history_path,
                                            std::vector<std::string> words = {});
  virtual ~LineReader() = default;

  // Shows `prompt` and reads a line, without its newline, into `line`. What that holds already
  // stands there to be edited; where nothing is edited, it is lost.
  virtual Event read(const std::string& prompt, std::string& line) = 0;
  // Whether Ctrl-C is an event of read(): else it is a signal there, too.
  virtual bool takes_interrupts() const = 0;
  // Gives the terminal back as it was found, for a process about to end. Any thread.
  virtual void restore_terminal() = 0;
};

}  // namespace headrace
