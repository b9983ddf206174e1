#include "server/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

// Sessions that clients resume are those of this server alone.
constexpr unsigned char kSessionContext[] = "headrace";

std::string last_tls_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "it is damaged";
}

// OpenSSL would ask the terminal.
int no_password(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

// Why a file cannot be opened, which OpenSSL tells in its own words.
Status check_readable(const char* flag, const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    return invalid_argument(fmt::format("{} {}: {}", flag, path, std::strerror(errno)));
  }
  std::fclose(file);
  return ok_status();
}

Status use_certificate(SSL_CTX* context, const TlsOptions& options) {
  HR_RETURN_IF_ERROR(check_readable("--ssl-certfile", options.certificate_file));
  if (SSL_CTX_use_certificate_chain_file(context, options.certificate_file.c_str()) == 1)
    return ok_status();
  return invalid_argument(fmt::format("--ssl-certfile {}: no certificate in PEM: {}",
                                      options.certificate_file, last_tls_error()));
}

Status use_key(SSL_CTX* context, const TlsOptions& options) {
  const bool apart = !options.key_file.empty();
  const std::string& path = apart ? options.key_file : options.certificate_file;
  const char* flag = apart ? "--ssl-keyfile" : "--ssl-certfile";
  HR_RETURN_IF_ERROR(check_readable(flag, path));
  bool asked_password = false;
  SSL_CTX_set_default_passwd_cb(context, no_password);
  SSL_CTX_set_default_passwd_cb_userdata(context, &asked_password);
  const bool used = SSL_CTX_use_PrivateKey_file(context, path.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  SSL_CTX_set_default_passwd_cb(context, nullptr);
  if (used && SSL_CTX_check_private_key(context) == 1) return ok_status();
  const int reason = ERR_GET_REASON(ERR_peek_last_error());
  if (asked_password) {
    ERR_clear_error();
    return invalid_argument(fmt::format(
        "{} {}: the key has a password: store it without one (openssl pkey)", flag, path));
  }
  if (reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH) {
    ERR_clear_error();
    return invalid_argument(fmt::format("{} {}: the key is not that of the certificate {}", flag,
                                        path, options.certificate_file));
  }
  return invalid_argument(fmt::format("{} {}: no private key in PEM: {}{}", flag, path,
                                      last_tls_error(),
                                      apart ? "" : ": name its file with --ssl-keyfile"));
}

Status use_client_certificates(SSL_CTX* context, const TlsOptions& options) {
  if (options.client_certificates == ClientCertificates::kNone) return ok_status();
  HR_RETURN_IF_ERROR(check_readable("--ssl-ca-certs", options.ca_file));
  STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(options.ca_file.c_str());
  if (names == nullptr ||
      SSL_CTX_load_verify_locations(context, options.ca_file.c_str(), nullptr) != 1) {
    if (names != nullptr) sk_X509_NAME_pop_free(names, X509_NAME_free);
    return invalid_argument(fmt::format("--ssl-ca-certs {}: no certificates in PEM: {}",
                                        options.ca_file, last_tls_error()));
  }
  SSL_CTX_set_client_CA_list(context, names);  // which takes them over
  const bool required = options.client_certificates == ClientCertificates::kRequired;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                     nullptr);
  return ok_status();
}

Result<TlsCertificates> read_certificates(const TlsOptions& options) {
  ERR_clear_error();
  TlsCertificates context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) return unavailable("TLS: " + last_tls_error());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE |
                                         SSL_OP_PRIORITIZE_CHACHA);
  // An idle connection keeps no buffers. A write of a connection may be cut, and go on from where
  // its bytes have moved to.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_id_context(context.get(), kSessionContext, sizeof kSessionContext - 1);
  HR_RETURN_IF_ERROR(use_certificate(context.get(), options));
  HR_RETURN_IF_ERROR(use_key(context.get(), options));
  HR_RETURN_IF_ERROR(use_client_certificates(context.get(), options));
  return context;
}

// What changes when a file is written, or another takes its name.
std::string stamps_of(const TlsOptions& options) {
  std::string stamps;
  for (const std::string* path : {&options.certificate_file, &options.key_file, &options.ca_file}) {
    struct stat file {};
    if (path->empty() || ::stat(path->c_str(), &file) != 0) {
      stamps += "none ";
      continue;
    }
    stamps += fmt::format("{}:{}:{}:{}.{} ", file.st_dev, file.st_ino, file.st_size,
                          file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  }
  return stamps;
}

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::load(TlsOptions options) {
  std::unique_ptr<TlsContext> context(new TlsContext(std::move(options)));
  HR_RETURN_IF_ERROR(context->reload());
  return context;
}

TlsCertificates TlsContext::current() const {
  std::lock_guard lock(mutex_);
  return current_;
}

Status TlsContext::reload() {
  std::string stamps = stamps_of(options_);  // before the files are read: what comes later is seen
  Result<TlsCertificates> read = read_certificates(options_);
  std::lock_guard lock(mutex_);
  stamps_ = std::move(stamps);
  if (!read.ok()) return read.status();
  current_ = std::move(*read);
  return ok_status();
}

Status TlsContext::reload_if_changed() {
  {
    std::lock_guard lock(mutex_);
    if (stamps_of(options_) == stamps_) return ok_status();
  }
  return reload();
}

}  // namespace headrace
