// Request line and header block -> HttpRequest. Strict where leniency lets two programs read one
// byte stream differently (request smuggling): what is ambiguous is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_message.h"
#include "server/server_limits.h"

namespace headrace {

// Why a request cannot be read; the connection closes after it was told.
struct HttpError {
  int status = 400;
  std::string_view message;  // from a closed set: holds nothing of the request
};

// Collects the bytes of a head up to its empty line. The verdict never depends on how the bytes
// were cut into segments.
class HttpHeadCollector {
 public:
  explicit HttpHeadCollector(const HttpLimits& limits) : limits_(limits) {}

  // Takes bytes until the head is complete or wrong; returns how many were taken.
  size_t feed(std::string_view bytes);
  bool complete() const { return complete_; }
  bool empty() const { return head_.empty(); }
  const std::optional<HttpError>& error() const { return error_; }
  const std::string& text() const { return head_; }  // with the empty line

 private:
  void take(char byte);
  void end_line();
  void fail(int status, std::string_view message) { error_ = HttpError{status, message}; }

  const HttpLimits& limits_;
  std::string head_;
  size_t line_begin_ = 0;
  int line_count_ = 0;
  bool complete_ = false;
  std::optional<HttpError> error_;
};

// How the body is delimited.
struct BodyFraming {
  bool chunked = false;
  uint64_t length = 0;  // when not chunked
  bool expects_continue = false;
};

// Parses a complete head. On an error `request` and `framing` are unspecified.
std::optional<HttpError> parse_http_head(std::string_view head, const HttpLimits& limits,
                                         HttpRequest& request, BodyFraming& framing);

}  // namespace headrace
