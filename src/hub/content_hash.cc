#include "hub/content_hash.h"

#include <openssl/evp.h>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {

struct ContentHash::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

ContentHash::ContentHash(HashKind kind, int64_t size) {
  if (kind == HashKind::kNone) return;
  state_ = std::make_unique<State>();
  const EVP_MD* digest = kind == HashKind::kSha256 ? EVP_sha256() : EVP_sha1();
  CHECK(EVP_DigestInit_ex(state_->context, digest, nullptr) == 1);
  if (kind == HashKind::kGitBlob) {
    std::string head = fmt::format("blob {}", size);
    head += '\0';
    add(head);
  }
}

ContentHash::~ContentHash() = default;
ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;

void ContentHash::add(std::string_view bytes) {
  if (state_) CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string ContentHash::finish() {
  if (!state_) return {};
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK(EVP_DigestFinal_ex(state_->context, digest, &size) == 1);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace headrace
