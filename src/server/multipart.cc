#include "server/multipart.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "server/header_text.h"

namespace headrace {
namespace {

constexpr size_t kBoundaryBytesMax = 70;  // RFC 2046
constexpr size_t kPartHeadBytesMax = 1 << 10;

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// One of `; name=value` or `; name="value"` behind a header's first word. A quoted value's escapes
// stay as they are.
std::optional<std::string_view> parameter_of(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at < header.size()) {
    ++at;
    const size_t equals = header.find('=', at);
    if (equals == header.npos) return std::nullopt;
    const std::string_view found = trim(header.substr(at, equals - at));
    size_t begin = equals + 1, end = 0;
    if (begin < header.size() && header[begin] == '"') {
      end = ++begin;
      while (end < header.size() && header[end] != '"') end += header[end] == '\\' ? 2 : 1;
      if (end >= header.size()) return std::nullopt;
      at = header.find(';', end);
    } else {
      at = end = std::min(header.find(';', begin), header.size());
    }
    if (equals_ignoring_case(found, name)) return trim(header.substr(begin, end - begin));
  }
  return std::nullopt;
}

bool is_form(std::string_view content_type) {
  return equals_ignoring_case(trim(content_type.substr(0, content_type.find(';'))),
                              "multipart/form-data");
}

// Reads the lines of a part's head into `part`.
Status read_part_head(std::string_view head, FormPart& part) {
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == line.npos) return invalid_argument("a part of the form has a malformed header");
    if (!equals_ignoring_case(line.substr(0, colon), "content-disposition")) continue;
    part.name = parameter_of(line, "name").value_or("");
    part.filename = parameter_of(line, "filename").value_or("");
  }
  if (part.name.empty()) return invalid_argument("a part of the form has no name");
  return ok_status();
}

}  // namespace

Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body) {
  if (!is_form(content_type)) return invalid_argument("the body must be multipart/form-data");
  const std::string_view boundary = parameter_of(content_type, "boundary").value_or("");
  if (boundary.empty() || boundary.size() > kBoundaryBytesMax) {
    return invalid_argument("Content-Type must name a boundary of 1 to 70 bytes");
  }
  const std::string delimiter = fmt::format("\r\n--{}", boundary);
  const std::string_view first = std::string_view(delimiter).substr(2);
  if (!body.starts_with(first)) return invalid_argument("the form must begin with its boundary");
  body.remove_prefix(first.size());
  std::vector<FormPart> parts;
  while (body.starts_with("\r\n")) {
    body.remove_prefix(2);
    const size_t head_end = body.substr(0, kPartHeadBytesMax + 4).find("\r\n\r\n");
    if (head_end == body.npos) return invalid_argument("a part of the form has no end of headers");
    FormPart part;
    HR_RETURN_IF_ERROR(read_part_head(body.substr(0, head_end), part));
    if (find_part(parts, part.name)) return invalid_argument("two parts of the form share a name");
    body.remove_prefix(head_end + 4);
    const size_t content_end = body.find(delimiter);
    if (content_end == body.npos) return invalid_argument("the form ends inside a part");
    part.content = body.substr(0, content_end);
    body.remove_prefix(content_end + delimiter.size());
    if (parts.size() == kFormPartsMax) return invalid_argument("the form has too many parts");
    parts.push_back(part);
  }
  if (!body.starts_with("--")) return invalid_argument("the form has no end");
  return parts;
}

const FormPart* find_part(const std::vector<FormPart>& parts, std::string_view name) {
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [&](const FormPart& part) { return part.name == name; });
  return found == parts.end() ? nullptr : &*found;
}

}  // namespace headrace
