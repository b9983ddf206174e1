// The query of a request's target: "limit=20&after=batch_1".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace headrace {

// "%2F" -> "/". What is no escape stays as it is.
std::string percent_decode(std::string_view text);

// The value of the first parameter of that name, decoded; nothing when there is none.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

// The same as an integer in [low, high]; `otherwise` when there is none. kInvalidArgument names it.
Result<int64_t> query_integer(std::string_view query, std::string_view name, int64_t otherwise,
                              int64_t low, int64_t high);

}  // namespace headrace
