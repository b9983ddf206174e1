#include "server/http_head_parser.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "server/header_text.h"

namespace headrace {
namespace {

namespace http = boost::beast::http;
using Fields = http::request<http::empty_body>;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// Digits only: no sign, no list, no spaces. 18 digits cannot overflow.
std::optional<uint64_t> parse_content_length(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

std::optional<HttpError> read_framing(const Fields& fields, const HttpLimits& limits,
                                      BodyFraming& framing) {
  const auto lengths = fields.count(http::field::content_length);
  const auto encodings = fields.count(http::field::transfer_encoding);
  if (lengths + encodings > 1)
    return HttpError{400,
                     "more than one body length: send Content-Length once, or Transfer-Encoding "
                     "alone"};
  if (encodings == 1) {
    if (fields.version() != 11) return HttpError{400, "Transfer-Encoding needs HTTP/1.1"};
    if (to_lower(view(fields[http::field::transfer_encoding])) != "chunked") {
      return HttpError{501, "the only Transfer-Encoding supported is chunked"};
    }
    framing.chunked = true;
  } else if (lengths == 1) {
    const auto length = parse_content_length(view(fields[http::field::content_length]));
    if (!length) return HttpError{400, "Content-Length must be digits"};
    framing.length = *length;
    const size_t most = std::max(limits.body_bytes_max, limits.upload_bytes_max);
    if (*length > most) return HttpError{413, "the body is too large"};
  }
  framing.expects_continue =
      fields.version() == 11 && to_lower(view(fields[http::field::expect])) == "100-continue";
  return std::nullopt;
}

// Origin form only. Absolute form, authority form and '*' name a host or a server, which is a
// second opinion on where the request goes.
std::optional<HttpError> read_target(std::string_view target, HttpRequest& request) {
  if (target.empty() || target.front() != '/') {
    return HttpError{400, "the request target must begin with '/'"};
  }
  for (char c : target) {
    if (c <= 0x20 || c >= 0x7f || c == '#') {
      return HttpError{400, "the request target holds a character that must be encoded"};
    }
  }
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  request.query = question == target.npos ? "" : target.substr(question + 1);
  return std::nullopt;
}

}  // namespace

size_t HttpHeadCollector::feed(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && !complete_ && !error_) take(bytes[taken++]);
  return taken;
}

void HttpHeadCollector::take(char byte) {
  const bool after_cr = !head_.empty() && head_.back() == '\r';
  constexpr char kHandshake = 0x16;  // the first byte of TLS
  if (head_.empty() && line_count_ == 0 && byte == kHandshake) {
    return fail(400, "this port speaks plain HTTP and not TLS: use http:// in place of https://");
  }
  if (after_cr != (byte == '\n')) return fail(400, "lines must end with CR LF");
  if (byte == '\0') return fail(400, "a header holds NUL");
  if (head_.size() == line_begin_ && line_count_ > 0 && (byte == ' ' || byte == '\t')) {
    return fail(400, "folded header lines are not accepted");
  }
  head_ += byte;
  if (byte == '\n') return end_line();
  if (head_.size() - line_begin_ > limits_.line_bytes_max)
    return fail(431, "a header line is too long: shorten the URL, cookies or other headers");
  if (head_.size() > limits_.head_bytes_max)
    return fail(431, "the headers are too large: send fewer or shorter ones");
}

void HttpHeadCollector::end_line() {
  const bool empty_line = head_.size() - line_begin_ == 2;
  if (empty_line && line_count_ == 0) {  // RFC 9112 2.2: empty lines before a request are skipped
    head_.clear();
    return;
  }
  line_begin_ = head_.size();
  if (empty_line) {
    complete_ = true;
  } else if (line_count_++ > limits_.header_count_max) {
    fail(431, "there are too many headers: send fewer");
  }
}

std::optional<HttpError> parse_http_head(std::string_view head, const HttpLimits& limits,
                                         HttpRequest& request, BodyFraming& framing) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<uint32_t>(limits.head_bytes_max + 2));
  parser.body_limit(boost::none);  // framing is read by us, and so are its limits
  parser.skip(true);
  boost::system::error_code error;
  parser.put(boost::asio::buffer(head.data(), head.size()), error);
  if (error == http::error::bad_version) return HttpError{505, "only HTTP/1.1 and 1.0 are spoken"};
  if (error || !parser.is_header_done()) return HttpError{400, "the request head is malformed"};

  const Fields& fields = parser.get();
  if (fields.count(http::field::host) !=
          (fields.version() == 11 ? 1u : fields.count(http::field::host)) ||
      fields.count(http::field::host) > 1) {
    return HttpError{400, "there must be exactly one Host header"};
  }
  request.http11 = fields.version() == 11;
  request.keep_alive = fields.keep_alive();
  request.method = view(fields.method_string());
  for (const auto& field : fields) {
    request.headers.push_back(
        {to_lower(view(field.name_string())), std::string(view(field.value()))});
  }
  if (auto bad_target = read_target(view(fields.target()), request)) return bad_target;
  return read_framing(fields, limits, framing);
}

}  // namespace headrace
