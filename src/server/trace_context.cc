#include "server/trace_context.h"

#include <algorithm>
#include <string_view>

#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

constexpr size_t kStateBytesMax = 512;

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text) {
  return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

bool is_field_value(std::string_view text, size_t bytes_max) {
  return text.size() <= bytes_max &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

TraceContext trace_context_of(const HttpRequest& request) {
  // 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01; later versions may have more behind
  // it.
  constexpr size_t kLength = 55;
  const std::string_view header = request.header("traceparent");
  const bool long_enough =
      header.size() == kLength ||
      (header.size() > kLength && header[kLength] == '-' && !header.starts_with("00"));
  if (long_enough && header[2] == '-' && header[35] == '-' && header[52] == '-' &&
      is_hex(header.substr(0, 2)) && !header.starts_with("ff") && is_id(header.substr(3, 32)) &&
      is_id(header.substr(36, 16)) && is_hex(header.substr(53, 2))) {
    const char low = header[54];
    const int flags = low <= '9' ? low - '0' : low - 'a' + 10;
    const std::string_view state = request.header("tracestate");
    return {.trace_id = std::string(header.substr(3, 32)),
            .parent_id = std::string(header.substr(36, 16)),
            .state = is_field_value(state, kStateBytesMax) ? std::string(state) : "",
            .sampled = (flags & 1) != 0};
  }
  return {.trace_id = random_hex_id(), .parent_id = "", .state = "", .sampled = true};
}

}  // namespace headrace
