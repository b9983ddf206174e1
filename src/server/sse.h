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

// The same of an event whose data names its type: clients that listen by name read it there.
inline void append_named_sse_event(std::string& out, const Json& data) {
  if (const Json* type = data.find("type")) out += "event: " + type->as_string() + "\n";
  append_sse_event(out, data);
}

// A comment: clients skip it.
inline constexpr std::string_view kSsePing = ": keep-alive\n\n";

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace headrace
