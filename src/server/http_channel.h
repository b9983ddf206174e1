// A connection to another server, over TCP as it is or under TLS: bytes there and back.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http_message.h"
#include "server/tls_channel.h"

namespace headrace {

// Of http://HOST[:PORT][/PATH] or https://.
struct HttpTarget {
  bool tls = false;
  std::string host;  // a name or an address; IPv6 without brackets
  std::string port;
  std::string path;  // at least "/"
};

// kInvalidArgument for what is no URL, kUnsupported for grpc://.
Result<HttpTarget> parse_http_url(std::string_view url);

// kUnavailable: "connect to HOST:PORT: WHY".
Status http_failure(std::string_view what, const HttpTarget& target, std::string_view why);

// A request after whose answer the connection ends. `headers`: beside those that every request has.
std::string http_request_text(std::string_view method, const HttpTarget& target,
                              std::string_view path, std::span<const HttpHeader> headers,
                              std::string_view body);

// One thread, but for abandon().
class HttpChannel {
 public:
  HttpChannel() = default;
  ~HttpChannel();
  HttpChannel(const HttpChannel&) = delete;
  HttpChannel& operator=(const HttpChannel&) = delete;

  // `connect_seconds`: for connect and each send; `receive_seconds`: for each receive, 0: no bound.
  // `trust`: the authorities of a target with TLS; REQUIRES: one, if it has; not opened before.
  // kUnavailable where there is no answer, or the target cannot show who it is.
  Status open(const HttpTarget& target, double connect_seconds, double receive_seconds,
              const TlsTrust* trust);
  Status send_all(std::string_view bytes);
  // Bytes that came, at least one; 0: the other end has closed.
  Result<size_t> receive(char* buffer, size_t bytes_max);

  // What blocks now and what is called later ends at once. Any thread, while this lives.
  void abandon();

 private:
  Status connect_to(const HttpTarget& target, double connect_seconds, double receive_seconds);
  bool adopt(int file);

  std::mutex mutex_;  // of file_ against abandon(), never held while anything blocks
  int file_ = -1;
  bool abandoned_ = false;
  std::optional<TlsChannel> tls_;
};

}  // namespace headrace
