#include "server/http_post.h"

#include <charconv>
#include <string>

#include <fmt/format.h>

namespace headrace {
namespace {

// Of "HTTP/1.1 200 OK".
Result<int> read_status(const HttpTarget& target, HttpChannel& channel) {
  constexpr std::string_view kBegin = "HTTP/1.x ";
  constexpr size_t kLength = kBegin.size() + 3;
  std::string head;
  char buffer[512];
  while (head.size() < kLength) {
    const Result<size_t> count = channel.receive(buffer, sizeof buffer);
    if (!count.ok()) return http_failure("no answer of", target, count.status().message());
    if (*count == 0) return http_failure("no answer of", target, "it closed the connection");
    head.append(buffer, *count);
  }
  int status = 0;
  const char* const digits = head.data() + kBegin.size();
  const auto read = std::from_chars(digits, digits + 3, status);
  if (!head.starts_with("HTTP/1.") || read.ptr != digits + 3) {
    return http_failure("no answer of", target,
                        "it does not speak HTTP/1.1 (gRPC is another port)");
  }
  return status;
}

}  // namespace

Result<int> post_http(const HttpTarget& target, std::span<const HttpHeader> headers,
                      std::string_view body, double seconds, const TlsTrust* trust) {
  HttpChannel channel;
  HR_RETURN_IF_ERROR(channel.open(target, seconds, seconds, trust));
  const Status sent =
      channel.send_all(http_request_text("POST", target, target.path, headers, body));
  if (!sent.ok()) return http_failure("send to", target, sent.message());
  return read_status(target, channel);
}

}  // namespace headrace
