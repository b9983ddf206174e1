// A certificate for servers that are measured: made at run time, signed by itself.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "server/tls_context.h"

namespace headrace {

// A key of P-256 and its certificate for an hour, in a file that goes with this.
class EdgeCertificate {
 public:
  // kUnavailable where no file can be written below the folder of temporary files.
  static Result<EdgeCertificate> make();
  ~EdgeCertificate();
  EdgeCertificate(EdgeCertificate&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  EdgeCertificate& operator=(EdgeCertificate&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }

  TlsOptions options() const { return {.certificate_file = path_}; }

 private:
  explicit EdgeCertificate(std::string path) : path_(std::move(path)) {}
  std::string path_;  // both, in PEM
};

}  // namespace headrace
