#include "server/api_keys.h"

#include <algorithm>
#include <cctype>

namespace headrace {

Result<ApiKeys> ApiKeys::create(const std::vector<std::string>& keys) {
  ApiKeys result;
  for (const std::string& key : keys) {
    if (key.empty() || key.size() > kKeyBytesMax) {
      return invalid_argument("an API key must have 1 to 256 bytes", "api-key");
    }
    result.keys_.push_back(pad(key));
  }
  return result;
}

ApiKeys::Padded ApiKeys::pad(std::string_view key) {
  Padded padded{};
  std::copy_n(key.begin(), std::min(key.size(), kKeyBytesMax), padded.begin());
  padded[kKeyBytesMax] = static_cast<unsigned char>(key.size() & 0xff);
  padded[kKeyBytesMax + 1] = static_cast<unsigned char>(std::min<size_t>(key.size() >> 8, 0xff));
  return padded;
}

bool ApiKeys::contains(std::string_view presented) const {
  const Padded candidate = pad(presented);
  unsigned found = 0;
  for (const Padded& key : keys_) {  // all keys, all bytes, whatever differs
    unsigned difference = 0;
    for (size_t i = 0; i < key.size(); ++i) difference |= key[i] ^ candidate[i];
    found |= (difference - 1) >> 31;  // 1 if difference was 0
  }
  return found != 0;
}

bool ApiKeys::admits(const HttpRequest& request) const {
  if (!required()) return true;
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view authorization = request.header("authorization");
  const bool bearer =
      authorization.size() > kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), authorization.begin(), [](char expected, char c) {
        return expected == std::tolower(static_cast<unsigned char>(c));
      });
  if (bearer) return contains(authorization.substr(kBearer.size()));
  const std::string_view key = request.header("x-api-key");
  return !key.empty() && contains(key);
}

}  // namespace headrace
