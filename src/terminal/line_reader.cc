#include "terminal/line_reader.h"

#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <iostream>
#include <string_view>
#include <utility>

#include "terminal/terminal.h"

namespace headrace {
namespace {

constexpr int kHistoryLines = 1000;

// A terminal that knows bracketed paste puts marks around what is pasted, while it is asked to.
constexpr const char* kPasteOn = "\x1b[?2004h";
constexpr const char* kPasteOff = "\x1b[?2004l";
constexpr wchar_t kInterruptKey = 3;  // Ctrl-C, should the mark at the end not come
constexpr std::string_view kPasteBegin = "\x1b[200~", kPasteEndKeys = "\x1b[201~";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
// Stands for a line's end inside a pasted text while it is edited and in the history.
constexpr wchar_t kPastedNewline = L'\u23ce';
constexpr std::string_view kPastedNewlineUtf8 = "\u23ce";

// A text to be edited, as the keys of a paste: in one its line ends and tabs are no keys.
std::string as_paste(std::string_view text) {
  std::string keys(kPasteBegin);
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t') keys += c;
  }
  return keys.append(kPasteEndKeys);
}

// What all words that begin with `begun` have in common; empty: there are none.
std::string common_beginning(const std::vector<std::string>& words, std::string_view begun) {
  std::string common;
  bool found = false;
  for (const std::string& word : words) {
    if (!word.starts_with(begun)) continue;
    size_t length = 0;
    while (found && length < std::min(common.size(), word.size()) && common[length] == word[length])
      ++length;
    common = found ? common.substr(0, length) : word + " ";
    found = true;
  }
  return common;
}

void restore_newlines(std::string& line) {
  size_t at = 0;
  while ((at = line.find(kPastedNewlineUtf8, at)) != line.npos) {
    line.replace(at, kPastedNewlineUtf8.size(), "\n");
  }
}

class PlainLineReader final : public LineReader {
 public:
  Event read(const std::string&, std::string& line) override {
    return std::getline(std::cin, line) ? Event::kLine : Event::kEnd;
  }
  bool takes_interrupts() const override { return false; }
  void restore_terminal() override {}
};

int columns_of(wchar_t character) {
  const int width = ::wcwidth(character);
  return width < 0 ? 2 : width;  // control characters are shown as ^X
}

// How a text that a terminal wrapped at `columns` is shown.
struct Wrapping {
  int columns = 80;
  // libedit draws a line anew without the spaces at the ends of its rows, and begins the next row
  // itself: the terminal takes them for lines of their own.
  bool drawn_anew = false;
};

// Rows above the text's end once the terminal has another width.
int rows_above_end(std::wstring_view text, const Wrapping& wrapping, int columns) {
  int rows = 0, line = 0, row = 0;  // columns of the terminal's line, of them in the present row
  int spaces = 0;                   // at the end of the row
  for (const wchar_t character : text) {
    const int width = columns_of(character);
    if (row + width > wrapping.columns) {
      if (wrapping.drawn_anew && spaces > 0) {
        rows += std::max(0, line - spaces - 1) / columns + 1;
        line = 0;
      }
      row = spaces = 0;
    }
    row += width;
    line += width;
    spaces = character == L' ' ? spaces + 1 : 0;
  }
  return rows + line / columns;
}

// Tells of a window that has changed its size while somebody types. One in a process.
class WindowWatch {
 public:
  WindowWatch() {
    if (::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) return;  // then nothing is told
    struct sigaction action {};
    action.sa_handler = [](int) {
      const int saved = errno;
      if (::write(pipe_[1], "", 1) < 0) errno = saved;  // full: it will be told already
      errno = saved;
    };
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGWINCH, &action, nullptr);
  }
  ~WindowWatch() {
    ::signal(SIGWINCH, SIG_DFL);
    for (const int file : pipe_) ::close(file);
  }
  WindowWatch(const WindowWatch&) = delete;
  WindowWatch& operator=(const WindowWatch&) = delete;

  // Blocks until `file` has input (true) or the window has another size (false).
  bool wait_for_input(int file) const {
    pollfd files[] = {{pipe_[0], POLLIN, 0}, {file, POLLIN, 0}};
    while (::poll(files, 2, -1) < 0 && errno == EINTR) {
    }
    if (files[0].revents == 0) return true;
    char ignored[64];
    while (::read(pipe_[0], ignored, sizeof ignored) > 0) {
    }
    return false;
  }

 private:
  static inline int pipe_[2] = {-1, -1};  // a signal handler reaches nothing else
};

// libedit keeps the terminal's signal keys to itself (-isig), so Ctrl-C is a key like any other
// and never races with the line being edited.
class EditLineReader final : public LineReader {
 public:
  EditLineReader(const std::string& history_path, std::vector<std::string> words)
      : history_path_(history_path), words_(std::move(words)) {
    tcgetattr(STDIN_FILENO, &found_);
    edit_ = el_init("headrace", stdin, stdout, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    load_history();
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &EditLineReader::show_prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_ADDFN, "headrace-interrupt", "Drops the line", &EditLineReader::on_interrupt);
    el_source(edit_, nullptr);  // the user's ~/.editrc
    el_set(edit_, EL_BIND, "^C", "headrace-interrupt", nullptr);
    el_set(edit_, EL_ADDFN, "headrace-paste", "Takes what is pasted", &EditLineReader::on_paste);
    el_set(edit_, EL_BIND, "\\e[200~", "headrace-paste", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(edit_, EL_ADDFN, "headrace-complete", "Completes a word", &EditLineReader::on_tab);
    el_set(edit_, EL_BIND, "\t", "headrace-complete", nullptr);
    el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    // Between lines too keys stay keys: in canonical mode the terminal would make a Ctrl-D that was
    // typed ahead an end of its own, of which the switch to the next line leaves a zero byte.
    el_set(edit_, EL_SETTY, "-x", "-icanon", nullptr);
    el_wset(edit_, EL_GETCFN, &EditLineReader::read_character);
  }

  ~EditLineReader() override {
    history_end(history_);
    el_end(edit_);
  }

  Event read(const std::string& prompt, std::string& line) override {
    prompt_ = prompt;
    interrupted_ = false;
    // Before the prompt shows, not at the first read: a key typed in between would be the shell
    // mode's, and Ctrl-C a signal.
    el_set(edit_, EL_PREP_TERM, 1);
    el_resize(edit_);  // the window may have another size than at the last line
    wrapping_ = {window_columns(), false};
    write_sequence(kPasteOn);
    if (!line.empty()) el_push(edit_, as_paste(line).c_str());
    int bytes = 0;
    const char* text = el_gets(edit_, &bytes);
    write_sequence(kPasteOff);
    if (interrupted_) {
      el_reset(edit_);
      std::fputs("^C\n", stdout);
      return interrupted_empty_ ? Event::kInterruptEmpty : Event::kInterrupt;
    }
    if (text == nullptr || bytes <= 0) {
      std::fputs("\n", stdout);
      return Event::kEnd;
    }
    line.assign(text, static_cast<size_t>(bytes));
    if (line.ends_with('\n')) line.pop_back();
    remember(line);
    restore_newlines(line);
    return Event::kLine;
  }

  bool takes_interrupts() const override { return true; }

  void restore_terminal() override {
    tcsetattr(STDIN_FILENO, TCSANOW, &found_);
    // Its result does not matter: the process is about to end.
    if (sequences_ && ::write(STDOUT_FILENO, kPasteOff, std::strlen(kPasteOff)) < 0) return;
  }

 private:
  static EditLineReader& self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<EditLineReader*>(data);
  }
  static const char* show_prompt(EditLine* edit) { return self(edit).prompt_.c_str(); }
  static unsigned char on_interrupt(EditLine* edit, int) {
    const LineInfoW* line = el_wline(edit);
    self(edit).interrupted_ = true;
    self(edit).interrupted_empty_ = line->lastchar == line->buffer;
    return CC_EOF;
  }

  static unsigned char on_tab(EditLine* edit, int) {
    const LineInfo* line = el_line(edit);
    const std::string begun(line->buffer, line->cursor);
    const std::string common = common_beginning(self(edit).words_, begun);
    if (begun.empty() || common.size() <= begun.size()) return CC_ERROR;
    return el_insertstr(edit, common.c_str() + begun.size()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  // libedit's own cannot be told of a new window size without leaving it all other signals too.
  static int read_character(EditLine* edit, wchar_t* character) {
    EditLineReader& reader = self(edit);
    std::mbstate_t state{};
    while (true) {
      if (!reader.window_.wait_for_input(STDIN_FILENO)) {
        reader.redraw();
        continue;
      }
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return static_cast<int>(count);
      const size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;  // the character goes on
      if (used != static_cast<size_t>(-1)) return 1;
      state = {};  // no character of this locale: dropped
    }
  }

  void write_sequence(const char* sequence) const {
    if (!sequences_) return;
    std::fputs(sequence, stdout);
    std::fflush(stdout);
  }

  // The terminal has wrapped what it shows to its new width: goes to the first of these rows, takes
  // them away and shows the line anew.
  void redraw() {
    if (!sequences_) return;
    const int columns = window_columns();
    const LineInfoW* line = el_wline(edit_);
    std::wstring shown(prompt_.begin(), prompt_.end());  // prompts are ASCII
    shown.append(line->buffer, line->cursor);
    const int rows_up = rows_above_end(shown, wrapping_, columns);
    std::fputs("\r", stdout);
    if (rows_up > 0) std::fprintf(stdout, "\x1b[%dA", rows_up);
    std::fputs("\x1b[J", stdout);
    std::fflush(stdout);
    el_resize(edit_);
    el_set(edit_, EL_REFRESH);
    wrapping_ = {columns, true};
  }

  static int window_columns() {
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col : 80;
  }

  // Many lines are one input, as they were copied.
  static unsigned char on_paste(EditLine* edit, int) {
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kPasteEnd) && c != kInterruptKey && el_wgetc(edit, &c) == 1) text += c;
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    std::wstring line;
    for (const wchar_t character : text) {
      if (character == L'\n' || character == L'\r') {
        line += kPastedNewline;
      } else if (character >= L' ' || character == L'\t') {
        line += character;
      }
    }
    return el_winsertstr(edit, line.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  void remember(const std::string& line) {
    if (line.find_first_not_of(' ') == std::string::npos) return;
    HistEvent event;
    history(history_, &event, H_ENTER, line.c_str());
    append_to_history();
  }

  void load_history() {
    if (history_path_.empty()) return;
    HistEvent event;
    const int loaded = history(history_, &event, H_LOAD, history_path_.c_str());
    if (loaded <= 2 * kHistoryLines) return;
    const mode_t mask = umask(0077);  // prompts are private
    history(history_, &event, H_SAVE, history_path_.c_str());
    umask(mask);
  }

  // The line that was entered last, at once: a session that a signal ends has kept its lines, and
  // sessions beside each other keep all of theirs.
  void append_to_history() {
    if (history_path_.empty()) return;
    const int descriptor =
        ::open(history_path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    std::FILE* const file = descriptor < 0 ? nullptr : ::fdopen(descriptor, "a");
    if (file == nullptr) return;
    std::fseek(file, 0, SEEK_END);  // libedit writes the file's head where this is its beginning
    HistEvent event;
    history(history_, &event, H_NSAVE_FP, size_t{1}, file);
    std::fclose(file);
  }

  const std::string history_path_;
  const std::vector<std::string> words_;
  const bool sequences_ = knows_sequences(STDOUT_FILENO);
  termios found_{};
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  const WindowWatch window_;
  Wrapping wrapping_;  // of the line being edited
  std::string prompt_;
  bool interrupted_ = false, interrupted_empty_ = false;
};

// libedit reads characters by the locale: any UTF-8 one will do.
void use_utf8_locale() {
  if (std::setlocale(LC_CTYPE, "") != nullptr && MB_CUR_MAX > 1) return;
  std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

std::unique_ptr<LineReader> LineReader::create(const std::string& history_path,
                                               std::vector<std::string> words) {
  const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  if (!terminal) return std::make_unique<PlainLineReader>();
  use_utf8_locale();
  return std::make_unique<EditLineReader>(history_path, std::move(words));
}

}  // namespace headrace
