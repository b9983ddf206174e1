// An HTTP request as routes see it, and the answer they give: plain data, no sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct HttpHeader {
  std::string name;  // lower case in requests
  std::string value;
};

struct HttpRequest {
  std::string id;  // request_id_of(); empty: it was not asked for yet
  std::string method;
  std::string path;  // origin form as sent, before '?'; not decoded: auth and routing read the same
  std::string query;  // after '?', without it
  std::vector<HttpHeader> headers;
  std::string body;
  std::shared_ptr<void> body_lease;  // of the room that the body takes (body_budget.h)
  bool http11 = true;
  bool keep_alive = true;

  // The value of the only header of that (lower case) name; empty when there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;
  std::string body;
  std::optional<uint64_t> stream_bytes = std::nullopt;  // of a stream whose length is known
  bool close = false;                                   // the connection ends after this answer
  std::shared_ptr<const void> held = nullptr;  // let go when the last byte has left, or never will
};

std::string_view reason_phrase(int status);

// Status line and headers. `content_length` < 0: the body follows in chunks (HTTP/1.1) or until
// the connection closes (HTTP/1.0).
std::string format_response_head(const HttpResponse& response, long content_length, bool http11,
                                 bool keep_alive);
// One chunk of a chunked body. REQUIRES: !data.empty(), an empty chunk ends the body.
void append_chunk(std::string& out, std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Header values that we echo: printable ASCII, at most `bytes_max`; else false.
bool is_safe_header_value(std::string_view value, size_t bytes_max);

}  // namespace headrace
