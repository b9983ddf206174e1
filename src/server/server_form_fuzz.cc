// parse_form() on any bytes: the first line is the Content-Type, the rest the body. Parts lie in
// the body, in order, and each has a name of its own.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/multipart.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view body = text.substr(std::min(end + 1, text.size()));
  const auto parts = parse_form(text.substr(0, end), body);
  if (!parts.ok()) return 0;
  CHECK(parts->size() <= kFormPartsMax);
  const char* at = body.data();
  for (const FormPart& part : *parts) {
    CHECK(at <= part.content.data());
    at = part.content.data() + part.content.size();
    CHECK(at <= body.data() + body.size());
    CHECK(find_part(*parts, part.name) == &part);
  }
  return 0;
}
