#include "server/http_channel.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {
namespace {

timeval to_timeval(double seconds) {
  timeval limit{};
  limit.tv_sec = static_cast<time_t>(seconds);
  limit.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(limit.tv_sec)) * 1e6);
  return limit;
}

}  // namespace

Result<HttpTarget> parse_http_url(std::string_view url) {
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  if (url.starts_with("grpc")) {
    return unsupported(fmt::format(
        "{}: HTTP alone is supported, as http://127.0.0.1:4318: gRPC is another port", url));
  }
  const auto malformed = [&] {
    return invalid_argument(fmt::format("{}: must be http://HOST[:PORT][/PATH], or https://", url));
  };
  const bool tls = url.starts_with(kHttps);
  if (!tls && !url.starts_with(kHttp)) return malformed();
  const std::string_view rest = url.substr(tls ? kHttps.size() : kHttp.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  HttpTarget target{
      .tls = tls, .host = "", .port = tls ? "443" : "80", .path = std::string(rest.substr(slash))};
  if (target.path.empty()) target.path = "/";
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  const size_t colon = authority.find(':', std::min(bracket, authority.size()));
  if (colon != authority.npos) {
    target.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  target.host = authority;
  uint16_t port = 0;
  const char* const end = target.port.data() + target.port.size();
  const auto read = std::from_chars(target.port.data(), end, port);
  const bool printable = is_safe_header_value(url, 2048) && url.find(' ') == url.npos;
  if (target.host.empty() || read.ptr != end || port == 0 || !printable) return malformed();
  return target;
}

Status http_failure(std::string_view what, const HttpTarget& target, std::string_view why) {
  return unavailable(fmt::format("{} {}:{}: {}", what, target.host, target.port, why));
}

std::string http_request_text(std::string_view method, const HttpTarget& target,
                              std::string_view path, std::span<const HttpHeader> headers,
                              std::string_view body) {
  const bool ip6 = target.host.find(':') != target.host.npos;
  std::string message =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}{}{}:{}\r\nConnection: close\r\n", method, path,
                  ip6 ? "[" : "", target.host, ip6 ? "]" : "", target.port);
  if (!body.empty()) message += fmt::format("Content-Length: {}\r\n", body.size());
  for (const HttpHeader& header : headers) {
    message += fmt::format("{}: {}\r\n", header.name, header.value);
  }
  message += "\r\n";
  message += body;
  return message;
}

HttpChannel::~HttpChannel() {
  tls_.reset();
  if (file_ >= 0) ::close(file_);
}

Status HttpChannel::open(const HttpTarget& target, double connect_seconds, double receive_seconds,
                         const TlsTrust* trust) {
  HR_RETURN_IF_ERROR(connect_to(target, connect_seconds, receive_seconds));
  if (!target.tls) return ok_status();
  CHECK(trust != nullptr);
  Result<TlsChannel> tls = TlsChannel::handshake(*trust, file_, target.host);
  if (!tls.ok()) return http_failure("TLS with", target, tls.status().message());
  tls_ = *std::move(tls);
  return ok_status();
}

Status HttpChannel::connect_to(const HttpTarget& target, double connect_seconds,
                               double receive_seconds) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
  if (error != 0) return http_failure("resolve", target, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  const timeval connect_limit = to_timeval(connect_seconds);
  const timeval receive_limit = to_timeval(receive_seconds);
  int last_error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int file = ::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, 0);
    if (file >= 0) {
      ::setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &connect_limit, sizeof connect_limit);
      ::setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &receive_limit, sizeof receive_limit);
      if (!adopt(file)) return http_failure("connect to", target, "given up");
      if (::connect(file, each->ai_addr, each->ai_addrlen) == 0) return ok_status();
    }
    last_error = errno;
  }
  return http_failure("connect to", target, std::strerror(last_error));
}

// Instead of the one before. False: abandoned meanwhile.
bool HttpChannel::adopt(int file) {
  std::lock_guard lock(mutex_);
  const int before = std::exchange(file_, file);
  if (before >= 0) ::close(before);
  return !abandoned_;
}

Status HttpChannel::send_all(std::string_view bytes) {
  if (tls_) return tls_->send_all(bytes);
  while (!bytes.empty()) {
    const ssize_t sent = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return unavailable(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return ok_status();
}

Result<size_t> HttpChannel::receive(char* buffer, size_t bytes_max) {
  if (tls_) return tls_->receive(buffer, bytes_max);
  ssize_t count = -1;
  do {
    count = ::recv(file_, buffer, bytes_max, 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return unavailable(std::strerror(errno));
  return static_cast<size_t>(count);
}

void HttpChannel::abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  if (file_ >= 0) ::shutdown(file_, SHUT_RDWR);
}

}  // namespace headrace
