#include "base/status.h"

namespace headrace {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kCorrupt:
      return "corrupt";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kExhausted:
      return "exhausted";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kInternal:
      return "internal";
  }
  return "?";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return {code_, std::string(context) + ": " + message_, field_};
}

}  // namespace headrace
