// multipart/form-data (RFC 7578): the body that forms and clients of /v1/files send.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"

namespace headrace {

// Views into the body.
struct FormPart {
  std::string_view name;
  std::string_view filename;  // empty: a plain field
  std::string_view content;
};

inline constexpr size_t kFormPartsMax = 16;

// `content_type` is the request's header with its boundary. Strict: no preamble, CR LF at every
// line's end, each part with a name of its own and at most 1 KiB of headers. kInvalidArgument says
// what is wrong; holds nothing of the body.
Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body);

// The part of that name, or nullptr.
const FormPart* find_part(const std::vector<FormPart>& parts, std::string_view name);

}  // namespace headrace
