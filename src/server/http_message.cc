#include "server/http_message.h"

#include <algorithm>

#include <fmt/format.h>

namespace headrace {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (header.name == name) return header.value;
  }
  return {};
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
  }
  return "Error";
}

std::string format_response_head(const HttpResponse& response, long content_length, bool http11,
                                 bool keep_alive) {
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  if (!response.content_type.empty()) {
    out += fmt::format("Content-Type: {}\r\n", response.content_type);
  }
  for (const HttpHeader& header : response.headers) {
    out += fmt::format("{}: {}\r\n", header.name, header.value);
  }
  if (response.status == 304) {  // it has no body, and its length would be that of another answer
  } else if (content_length >= 0) {
    out += fmt::format("Content-Length: {}\r\n", content_length);
  } else if (http11) {
    out += "Transfer-Encoding: chunked\r\n";
  }
  if (!keep_alive) {
    out += "Connection: close\r\n";
  } else if (!http11) {
    out += "Connection: keep-alive\r\n";
  }
  return out += "\r\n";
}

void append_chunk(std::string& out, std::string_view data) {
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", data.size());
  out += data;
  out += "\r\n";
}

bool is_safe_header_value(std::string_view value, size_t bytes_max) {
  return !value.empty() && value.size() <= bytes_max &&
         std::all_of(value.begin(), value.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace headrace
