// The API keys a server accepts.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http_message.h"

namespace headrace {

class ApiKeys {
 public:
  static constexpr size_t kKeyBytesMax = 256;

  // kInvalidArgument for an empty key or one over kKeyBytesMax. No keys: everything is open.
  static Result<ApiKeys> create(const std::vector<std::string>& keys);

  bool required() const { return !keys_.empty(); }
  // Whether the request carries a key: "Authorization: Bearer KEY" or "X-API-Key: KEY". The work
  // done depends on neither the keys nor where the first wrong byte is.
  bool admits(const HttpRequest& request) const;
  bool contains(std::string_view presented) const { return find(presented) >= 0; }
  // The place of the request's key among the different ones given to create(); -1: it has none of
  // them.
  int find(const HttpRequest& request) const;

 private:
  using Padded = std::array<unsigned char, kKeyBytesMax + 2>;  // bytes, zeros, then the length
  int find(std::string_view presented) const;
  static Padded pad(std::string_view key);
  std::vector<Padded> keys_;
};

}  // namespace headrace
