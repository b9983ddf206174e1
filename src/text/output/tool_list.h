// The functions that a request offers, as far as reading a call of them needs it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace headrace {

// How an argument that a model writes without quotes is meant.
enum class ArgumentKind : uint8_t {
  kText,     // a string, or not declared
  kBoolean,  // may be spelled True
  kOther,    // JSON where it is JSON
};

// How a value of this schema is meant.
ArgumentKind argument_kind(const Json& schema);

class ToolList {
 public:
  ToolList() = default;
  // `tools` as the chat completions API has them; what is not of that form is passed over.
  explicit ToolList(const Json& tools);

  bool has(std::string_view function) const { return functions_.contains(function); }
  ArgumentKind kind_of(std::string_view function, std::string_view argument) const;
  // The schema of its arguments; nullptr: there is none.
  const Json* parameters(std::string_view function) const;

 private:
  struct Function {
    std::map<std::string, ArgumentKind, std::less<>> arguments;
    Json parameters;  // null: there are none
  };
  std::map<std::string, Function, std::less<>> functions_;
};

}  // namespace headrace
