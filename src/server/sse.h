// Server-sent events.
#pragma once

#include <string>

#include "base/json.h"

namespace headrace {

inline void append_sse_event(std::string& out, const Json& data) {
  out += "data: ";
  out += write_json(data);  // compact: holds no line break
  out += "\n\n";
}

// A comment: clients skip it.
inline constexpr std::string_view kSsePing = ": keep-alive\n\n";

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace headrace
