#include "terminal/safe_text.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "text/utf8.h"

namespace headrace {
namespace {

bool is_obeyed(char32_t c) {
  if (c == U'\n' || c == U'\t') return false;
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return true;
  return (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string terminal_safe(std::string_view text) {
  SafeText safe;
  std::string told = safe.push(text);
  return told + safe.finish();
}

std::string safe_line(std::string_view text, size_t bytes_max) {
  std::string line = terminal_safe(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  size_t end = 0;
  while (end < line.size()) {
    const size_t next = end + utf8_step(std::string_view(line).substr(end)).length;
    if (next > bytes_max) break;
    end = next;
  }
  line.resize(end);
  return line;
}

std::string SafeText::push(std::string_view bytes) {
  incomplete_ += bytes;
  std::string_view rest = incomplete_;
  std::string told;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.state == Utf8State::kIncomplete) break;
    if (step.state == Utf8State::kInvalid) {
      told += kReplacementCharacter;
    } else if (!is_obeyed(step.code_point)) {
      told += rest.substr(0, step.length);
    }
    rest.remove_prefix(step.length);
  }
  incomplete_ = std::string(rest);
  return told;
}

std::string SafeText::finish() {
  const bool cut = !incomplete_.empty();
  incomplete_.clear();
  return cut ? std::string(kReplacementCharacter) : std::string();
}

void write_to_stdout(std::string_view text) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  const std::string safe = terminal ? terminal_safe(text) : std::string(text);
  std::fwrite(safe.data(), 1, safe.size(), stdout);
  std::fflush(stdout);
}

}  // namespace headrace
