#include "server/tls_channel.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

namespace headrace {
namespace {

std::string tls_reason(const SSL* connection, int result, int system_error) {
  const long verified = connection ? SSL_get_verify_result(connection) : X509_V_OK;
  const int kind = connection ? SSL_get_error(connection, result) : SSL_ERROR_SSL;
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (verified != X509_V_OK) {
    return fmt::format("its certificate is not trusted: {}",
                       X509_verify_cert_error_string(verified));
  }
  const char* const reason = ERR_reason_error_string(code);
  if (reason != nullptr) return reason;
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return "it took too long";
  return system_error != 0 ? std::strerror(system_error) : "it closed the connection";
}

bool is_address(const std::string& host) {
  in6_addr bytes;
  return inet_pton(AF_INET, host.c_str(), &bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

// OpenSSL writes without MSG_NOSIGNAL: a peer that has gone would end a program that does not
// ignore SIGPIPE. Of this thread, for as long as it lives.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now{};
    if (sigismember(&before_, SIGPIPE) == 0) {
      sigtimedwait(&pipe_, nullptr, &now);
      pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
  }
  NoPipeSignal(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
};

}  // namespace

Result<std::shared_ptr<const TlsTrust>> TlsTrust::load(const std::string& ca_file) {
  auto trust = std::make_shared<TlsTrust>();
  trust->context_.reset(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX* const context = trust->context_.get();
  if (context == nullptr) return unavailable("no memory for TLS");
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  const bool loaded = ca_file.empty()
                          ? SSL_CTX_set_default_verify_paths(context) == 1
                          : SSL_CTX_load_verify_locations(context, ca_file.c_str(), nullptr) == 1;
  if (!loaded) {
    return invalid_argument(fmt::format("{}: no certificates of authorities in PEM: {}", ca_file,
                                        tls_reason(nullptr, 0, 0)));
  }
  return std::shared_ptr<const TlsTrust>(std::move(trust));
}

TlsChannel::TlsChannel(ssl_st* connection) : connection_(connection, SSL_free) {}

Result<TlsChannel> TlsChannel::handshake(const TlsTrust& trust, int socket,
                                         const std::string& host) {
  SSL* const connection = SSL_new(trust.context_.get());
  if (connection == nullptr) return unavailable("no memory for TLS");
  TlsChannel client(connection);
  const bool address = is_address(host);
  const bool named =
      address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection), host.c_str()) == 1
              : SSL_set1_host(connection, host.c_str()) == 1 &&
                    SSL_set_tlsext_host_name(connection, host.c_str()) == 1;
  if (!named || SSL_set_fd(connection, socket) != 1) return unavailable("no memory for TLS");
  const NoPipeSignal quiet;
  errno = 0;
  const int result = SSL_connect(connection);
  const int system_error = errno;
  if (result == 1) return client;
  return unavailable(tls_reason(connection, result, system_error));
}

Status TlsChannel::send_all(std::string_view bytes) {
  const NoPipeSignal quiet;
  while (!bytes.empty()) {
    const int part = static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX));
    errno = 0;
    const int sent = SSL_write(connection_.get(), bytes.data(), part);
    const int system_error = errno;
    if (sent <= 0) return unavailable(tls_reason(connection_.get(), sent, system_error));
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return ok_status();
}

Result<size_t> TlsChannel::receive(char* buffer, size_t bytes_max) {
  const NoPipeSignal quiet;
  errno = 0;
  const int count =
      SSL_read(connection_.get(), buffer, static_cast<int>(std::min<size_t>(bytes_max, INT_MAX)));
  const int system_error = errno;
  if (count > 0) return static_cast<size_t>(count);
  if (SSL_get_error(connection_.get(), count) == SSL_ERROR_ZERO_RETURN) return size_t{0};
  return unavailable(tls_reason(connection_.get(), count, system_error));
}

}  // namespace headrace
