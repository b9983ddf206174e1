// Follows one JSON value through a text that comes in pieces, without building it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

// Strict but for two things that models do: line breaks and other control characters in a string
// are let through as escapes, and a comma may stand before a closing bracket, where it is left out.
class JsonScanner {
 public:
  enum class Step : uint8_t { kMore, kDone, kDoneBefore, kBroken };

  // Appends to `out` what `c` adds to the value. kDoneBefore: a number ended before `c`.
  Step push(char c, std::string& out);

 private:
  enum class State : uint8_t {
    kValue,
    kElementOrEnd,
    kKeyOrEnd,
    kColon,
    kBehind,
    kString,
    kEscape,
    kHex,
    kWord,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kE,
    kESign,
    kExponent,
  };
  Step begin_value(char c, std::string& out);
  Step in_string(char c, std::string& out);
  Step in_number(char c, std::string& out);
  Step behind_value(char c, std::string& out);
  Step close(char c, std::string& out);
  Step value_ends();

  static constexpr size_t kDepthMax = 64, kCommaBytesMax = 16;
  State state_ = State::kValue;
  bool is_key_ = false;  // the string under way
  std::string comma_;    // seen and not written yet, with the white space behind it
  int hex_left_ = 0;
  std::string_view word_;  // what is left of it
  std::string open_;       // brackets
};

// As it stands inside of a JSON string.
void append_json_escaped(std::string& out, char c);

}  // namespace headrace
