// The hashes under which hubs keep their files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace headrace {

enum class HashKind {
  kSha256,   // of the bytes: large files of the hub, all of Ollama's registry
  kGitBlob,  // SHA-1 of "blob SIZE\0" and the bytes: small files of the hub
  kNone,     // nobody has said it: an address of a file
};

// One thread.
class ContentHash {
 public:
  // `size`: of the whole file.
  ContentHash(HashKind kind, int64_t size);
  ~ContentHash();
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;
  void add(std::string_view bytes);
  // In hexadecimal; of kNone "". Once, at the end.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headrace
