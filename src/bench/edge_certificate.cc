#include "bench/edge_certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>

namespace headrace {
namespace {

constexpr long kCertificateSeconds = 3600;

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

Owned<X509> certificate_of(EVP_PKEY* key) {
  Owned<X509> certificate(X509_new(), X509_free);
  if (!certificate) throw std::bad_alloc();
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kCertificateSeconds);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const auto* host = reinterpret_cast<const unsigned char*>("localhost");
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, host, -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_sign(certificate.get(), key, EVP_sha256());
  return certificate;
}

}  // namespace

Result<EdgeCertificate> EdgeCertificate::make() {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  if (!key) return unavailable("TLS: no key could be made");
  const Owned<X509> certificate = certificate_of(key.get());
  std::string path = (std::filesystem::temp_directory_path() / "headrace_XXXXXX").string();
  const int descriptor = ::mkstemp(path.data());  // readable by its owner alone
  if (descriptor < 0) return unavailable(path + ": no file can be made for the certificate");
  EdgeCertificate made(path);
  FILE* file = ::fdopen(descriptor, "w");
  const bool written =
      PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1 &&
      PEM_write_X509(file, certificate.get()) == 1;
  if (std::fclose(file) != 0 || !written) {
    return unavailable(path + ": the certificate could not be written");
  }
  return made;
}

EdgeCertificate::~EdgeCertificate() {
  if (!path_.empty()) std::remove(path_.c_str());
}

}  // namespace headrace
