#include "server/http_post.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "server/tls_channel.h"

namespace headrace {
namespace {

class Connection {
 public:
  explicit Connection(int file) : file_(file) {}
  Connection(Connection&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Connection& operator=(Connection&&) = delete;
  ~Connection() {
    if (file_ >= 0) ::close(file_);
  }
  int file() const { return file_; }

 private:
  int file_;
};

Status failed(std::string_view what, const HttpTarget& target, std::string_view why) {
  return unavailable(fmt::format("{} {}:{}: {}", what, target.host, target.port, why));
}

Result<Connection> connect_to(const HttpTarget& target, double seconds) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
  if (error != 0) return failed("resolve", target, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  timeval limit{};
  limit.tv_sec = static_cast<time_t>(seconds);
  limit.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(limit.tv_sec)) * 1e6);
  int last_error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Connection connection(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, 0));
    const int file = connection.file();
    if (file >= 0) {
      ::setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // connect()'s, too
      ::setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      if (::connect(file, each->ai_addr, each->ai_addrlen) == 0) return connection;
    }
    last_error = errno;
  }
  return failed("connect to", target, std::strerror(last_error));
}

Status send_plain(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return unavailable(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return ok_status();
}

Result<size_t> receive_plain(int file, char* buffer, size_t bytes_max) {
  ssize_t count = -1;
  do {
    count = ::recv(file, buffer, bytes_max, 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return unavailable(std::strerror(errno));
  return static_cast<size_t>(count);
}

// A socket, as it is or under TLS.
struct Channel {
  int file;
  std::optional<TlsChannel> tls;

  Status send_all(std::string_view bytes) {
    return tls ? tls->send_all(bytes) : send_plain(file, bytes);
  }
  Result<size_t> receive(char* buffer, size_t bytes_max) {
    return tls ? tls->receive(buffer, bytes_max) : receive_plain(file, buffer, bytes_max);
  }
};

// Of "HTTP/1.1 200 OK".
Result<int> read_status(const HttpTarget& target, Channel& channel) {
  constexpr std::string_view kBegin = "HTTP/1.x ";
  constexpr size_t kLength = kBegin.size() + 3;
  std::string head;
  char buffer[512];
  while (head.size() < kLength) {
    const Result<size_t> count = channel.receive(buffer, sizeof buffer);
    if (!count.ok()) return failed("no answer of", target, count.status().message());
    if (*count == 0) return failed("no answer of", target, "it closed the connection");
    head.append(buffer, *count);
  }
  int status = 0;
  const char* const digits = head.data() + kBegin.size();
  const auto read = std::from_chars(digits, digits + 3, status);
  if (!head.starts_with("HTTP/1.") || read.ptr != digits + 3) {
    return failed("no answer of", target, "it does not speak HTTP/1.1 (gRPC is another port)");
  }
  return status;
}

std::string post_message(const HttpTarget& target, std::span<const HttpHeader> headers,
                         std::string_view body) {
  const bool ip6 = target.host.find(':') != target.host.npos;
  std::string message = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}{}{}:{}\r\nConnection: close\r\nContent-Length: {}\r\n",
      target.path, ip6 ? "[" : "", target.host, ip6 ? "]" : "", target.port, body.size());
  for (const HttpHeader& header : headers) {
    message += fmt::format("{}: {}\r\n", header.name, header.value);
  }
  message += "\r\n";
  message += body;
  return message;
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

Result<int> post_http(const HttpTarget& target, std::span<const HttpHeader> headers,
                      std::string_view body, double seconds, const TlsTrust* trust) {
  HR_ASSIGN_OR_RETURN(const Connection connection, connect_to(target, seconds));
  Channel channel{.file = connection.file(), .tls = std::nullopt};
  if (target.tls) {
    CHECK(trust != nullptr);
    Result<TlsChannel> tls = TlsChannel::handshake(*trust, connection.file(), target.host);
    if (!tls.ok()) return failed("TLS with", target, tls.status().message());
    channel.tls = *std::move(tls);
  }
  const Status sent = channel.send_all(post_message(target, headers, body));
  if (!sent.ok()) return failed("send to", target, sent.message());
  return read_status(target, channel);
}

}  // namespace headrace
