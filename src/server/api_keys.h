// The API keys a server accepts, and what each may take of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http_message.h"

namespace headrace {

// Bounds on what one key takes; 0: none.
struct KeyLimits {
  double requests_per_minute = 0;
  double tokens_per_minute = 0;  // of prompts and answers together
  int32_t concurrent_requests = 0;
  friend bool operator==(const KeyLimits&, const KeyLimits&) = default;
};

struct ApiKey {
  ApiKey(std::string key) : secret(std::move(key)) {}
  ApiKey(const char* key) : secret(key) {}
  std::string secret;
  std::string name;   // in metrics, logs and folders, where the secret must not be; empty: made up
  std::string group;  // keys of one group share cached prefixes; empty: a group of its own
  KeyLimits limits;
};

class ApiKeys {
 public:
  static constexpr size_t kKeyBytesMax = 256;
  static constexpr size_t kNameBytesMax = 64;

  // kInvalidArgument for an empty key or one over kKeyBytesMax, for a name that is not 1 to
  // kNameBytesMax letters, digits, '-', '_' and '.' (a group's as well), and for a name of two
  // keys. A key that comes twice counts once. No keys: everything is open.
  static Result<ApiKeys> create(std::vector<ApiKey> keys);

  bool required() const { return !keys_.empty(); }
  size_t size() const { return keys_.size(); }
  // The place of the request's key among the different ones given to create(); -1: it has none of
  // them. A request carries one as "Authorization: Bearer KEY" or "X-API-Key: KEY". The work done
  // depends on neither the keys nor where the first wrong byte is.
  int find(const HttpRequest& request) const;
  // The place of the key of that name; -1: there is none.
  int find_name(std::string_view name) const;
  // REQUIRES: 0 <= place < size()
  const std::string& name(int place) const { return keys_[static_cast<size_t>(place)].name; }
  // The name for open pages such as /metrics: a made-up one says which key it is ("key-3": the
  // third), and nothing of the key.
  const std::string& label(int place) const { return keys_[static_cast<size_t>(place)].label; }
  // Whose prefixes the key finds in the cache, as the beginning of a salt (sched/request.h): no two
  // keys have one, but those of a group. Place -1: the requests of a server without keys.
  std::string cache_domain(int place) const;
  const KeyLimits& limits(int place) const { return keys_[static_cast<size_t>(place)].limits; }

 private:
  using Padded = std::array<unsigned char, kKeyBytesMax + 2>;  // bytes, zeros, then the length
  struct Entry {
    Padded secret;
    std::string name, label, group;  // no label: there was no name
    KeyLimits limits;
  };
  void label_unnamed();
  int find(std::string_view presented) const;
  static Padded pad(std::string_view key);
  std::vector<Entry> keys_;
};

// Keys from a file, one a line: the key itself (as llama-server's --api-key-file has it), or an
// object {"key": ..., "name": ..., "group": ..., "requests_per_minute": ...,
// "tokens_per_minute": ..., "concurrent_requests": ...} of which only "key" is needed; what it does
// not say is as in `otherwise`. Empty lines and those that begin with '#' are left out. Errors name
// path and line, never the key. A file that anybody may write is refused; one that others may
// read is logged.
Result<std::vector<ApiKey>> read_api_key_file(const std::string& path, const KeyLimits& otherwise);

}  // namespace headrace
