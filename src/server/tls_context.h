// The certificates that the server shows under TLS, read from files, and read again when those
// change.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace headrace {

enum class ClientCertificates { kNone, kOptional, kRequired };

struct TlsOptions {
  std::string certificate_file;  // PEM: the server's certificate, then those that lead to its root
  std::string key_file;          // PEM, without a password; empty: in certificate_file
  std::string ca_file;           // PEM: who may have signed a client's certificate
  ClientCertificates client_certificates = ClientCertificates::kNone;

  bool enabled() const { return !certificate_file.empty(); }
};

// What connections are opened with. It never changes: new files make a new one, and connections
// keep the one that they began with.
using TlsCertificates = std::shared_ptr<ssl_ctx_st>;

// Any thread.
class TlsContext {
 public:
  // kInvalidArgument names the flag and the file: one that cannot be read, is no PEM, has a
  // password, or a key that is not the certificate's. REQUIRES: options.enabled()
  static Result<std::unique_ptr<TlsContext>> load(TlsOptions options);

  TlsCertificates current() const;
  // Reads the files again. What cannot be used is told, and what was there stays in use.
  Status reload();
  // The same if a file has changed since it was last read, or tried.
  Status reload_if_changed();

 private:
  explicit TlsContext(TlsOptions options) : options_(std::move(options)) {}

  const TlsOptions options_;
  mutable std::mutex mutex_;
  TlsCertificates current_;
  std::string stamps_;  // of the files when they were last read
};

}  // namespace headrace
