// TLS of connections that this server opens: the authorities that it trusts, and one connection's
// bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct ssl_st;      // OpenSSL's SSL

namespace headrace {

// Any thread. TLS 1.2 and later; certificates are always checked, and that they are the host's.
class TlsTrust {
 public:
  // `ca_file`: PEM of the authorities that are trusted, as OTEL_EXPORTER_OTLP_CERTIFICATE; empty:
  // those of the system. kInvalidArgument names a file that cannot be used.
  static Result<std::shared_ptr<const TlsTrust>> load(const std::string& ca_file);

  TlsTrust() = default;

 private:
  friend class TlsChannel;
  std::shared_ptr<ssl_ctx_st> context_;
};

// Over an open socket, which outlives it and whose time-outs are those of each call. One thread at
// a time.
class TlsChannel {
 public:
  // kUnavailable with the reason: no TLS there, or a certificate that is not trusted.
  static Result<TlsChannel> handshake(const TlsTrust& trust, int socket, const std::string& host);

  Status send_all(std::string_view bytes);
  // Bytes that came, at least one; 0: the other end has closed.
  Result<size_t> receive(char* buffer, size_t bytes_max);

 private:
  explicit TlsChannel(ssl_st* connection);
  std::shared_ptr<ssl_st> connection_;
};

}  // namespace headrace
