// The members of a JSON object as the bytes that they are: enough to find a model's name or the
// text of a prompt in a body that is passed on as it came. Whether a body is JSON is the worker's
// to say.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace headrace {

// One pass over an object's own members; those inside of them are skipped. A view of the text.
class JsonMembers {
 public:
  explicit JsonMembers(std::string_view text);

  // The next member; false: there is none, or the text is no object from here on.
  bool next();

  std::string_view key() const { return key_; }      // between its quotes, escapes as they are
  std::string_view value() const { return value_; }  // as it stands, a string with its quotes
  size_t value_begin() const { return static_cast<size_t>(value_.data() - text_.data()); }

 private:
  void skip_blanks();
  std::string_view take_string();
  bool skip_value();
  bool skip_nested();

  std::string_view text_;
  size_t at_ = 0;
  std::string_view key_, value_;
};

// The value of the object's first member of that name; empty: it has none.
std::string_view json_member(std::string_view object, std::string_view key);
// The string that a value is, without escapes that are not looked at; empty: it is none.
std::string_view json_string(std::string_view value);
std::optional<long long> json_integer(std::string_view value);

}  // namespace headrace
