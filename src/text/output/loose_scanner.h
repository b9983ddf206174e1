// Arguments in the syntax of Python's calls or of Gemma's, turned into JSON as they come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/stop_matcher.h"

namespace headrace {

// Begins behind the opening bracket and takes the closing one.
class LooseScanner {
 public:
  enum class Step : uint8_t { kMore, kDone, kBroken };

  // `quote` empty: Python, key=value up to ')'; else Gemma, key:value up to '}', with strings
  // between two quotes.
  explicit LooseScanner(std::string_view quote) : quote_(quote), open_(quote.empty() ? "(" : "{") {}

  Step push(char c, std::string& out);
  // An argument has a name and a value, or the brackets are closed.
  bool certain() const { return certain_; }

 private:
  enum class State : uint8_t {
    kKeyOrEnd,
    kBareKey,
    kColon,
    kValue,
    kElementOrEnd,
    kWord,
    kString,  // Python's
    kEscape,
    kCode,   // hex digits of an escape
    kQuote,  // the opening one of Gemma's
    kQuoted,
    kBehind,
  };
  bool python() const { return quote_.empty(); }
  char separator() const { return open_.back() == '(' ? '=' : ':'; }
  Step key_or_end(char c, std::string& out);
  Step bare_key(char c, std::string& out);
  Step begin_value(char c, std::string& out);
  Step in_word(char c, std::string& out);
  Step in_string(char c, std::string& out);
  Step in_escape(char c, std::string& out);
  Step in_quote(char c, std::string& out);
  Step behind(char c, std::string& out);
  Step close(char c, std::string& out);
  void begin_element(std::string& out);
  void end_string(std::string& out);
  bool write_word(std::string& out);

  static constexpr size_t kDepthMax = 64, kWordBytesMax = 1024;
  const std::string_view quote_;
  State state_ = State::kKeyOrEnd;
  std::string open_;    // brackets
  bool begun_ = false;  // the outer bracket is written
  bool comma_ = false;  // seen, and not written yet
  bool certain_ = false;
  bool is_key_ = false;  // the string under way
  char string_quote_ = 0;
  std::string word_;  // a bare key, number, name, or code of an escape
  size_t code_digits_ = 0;
  std::optional<StopMatcher> until_quote_;
};

}  // namespace headrace
