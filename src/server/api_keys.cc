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
    if (!result.contains(key)) result.keys_.push_back(pad(key));
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

int ApiKeys::find(std::string_view presented) const {
  const Padded candidate = pad(presented);
  unsigned found = 0;                                      // place + 1
  for (size_t place = 0; place < keys_.size(); ++place) {  // all keys, all bytes, whatever differs
    unsigned difference = 0;
    for (size_t i = 0; i < candidate.size(); ++i) difference |= keys_[place][i] ^ candidate[i];
    const unsigned same = 0u - ((difference - 1) >> 31);  // all ones if difference was 0
    found |= same & static_cast<unsigned>(place + 1);
  }
  return static_cast<int>(found) - 1;
}

bool ApiKeys::admits(const HttpRequest& request) const { return !required() || find(request) >= 0; }

int ApiKeys::find(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view authorization = request.header("authorization");
  const bool bearer =
      authorization.size() > kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), authorization.begin(), [](char expected, char c) {
        return expected == std::tolower(static_cast<unsigned char>(c));
      });
  if (bearer) return find(authorization.substr(kBearer.size()));
  const std::string_view key = request.header("x-api-key");
  return key.empty() ? -1 : find(key);
}

}  // namespace headrace
