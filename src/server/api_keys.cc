#include "server/api_keys.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "server/header_text.h"

namespace headrace {

namespace {

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= ApiKeys::kNameBytesMax && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

// The same after every start, whatever the order of the keys: files and batches are kept under it.
// It is shown nowhere, since who guesses a key could see by it that the guess is right.
std::string made_up_name(std::string_view secret) {
  const uint64_t digest = checksum64(std::as_bytes(std::span(secret.data(), secret.size())));
  return fmt::format("key-{:010x}", digest >> 24);
}

}  // namespace

Result<ApiKeys> ApiKeys::create(std::vector<ApiKey> keys) {
  ApiKeys result;
  for (ApiKey& key : keys) {
    if (key.secret.empty() || key.secret.size() > kKeyBytesMax) {
      return invalid_argument("an API key must have 1 to 256 bytes", "api-key");
    }
    if (result.find(key.secret) >= 0) continue;
    std::string label = key.name;
    if (key.name.empty()) key.name = made_up_name(key.secret);
    if (!is_name(key.name) || !(key.group.empty() || is_name(key.group))) {
      return invalid_argument(
          "the name or group of an API key must have 1 to 64 letters, digits, '-', '_' and '.'",
          "api-key");
    }
    if (result.find_name(key.name) >= 0) {
      return invalid_argument(fmt::format("two API keys have the name {}", key.name), "api-key");
    }
    result.keys_.push_back({.secret = pad(key.secret),
                            .name = std::move(key.name),
                            .label = std::move(label),
                            .group = std::move(key.group),
                            .limits = key.limits});
  }
  result.label_unnamed();
  return result;
}

void ApiKeys::label_unnamed() {
  for (size_t place = 0; place < keys_.size(); ++place) {
    std::string& label = keys_[place].label;
    if (!label.empty()) continue;
    label = fmt::format("key-{}", place + 1);
    while (find_name(label) >= 0) label += '_';  // somebody's name
  }
}

std::string ApiKeys::cache_domain(int place) const {
  if (place < 0) return "";
  const Entry& entry = keys_[static_cast<size_t>(place)];  // neither name has a '/'
  return entry.group.empty() ? "key/" + entry.name : "group/" + entry.group;
}

int ApiKeys::find_name(std::string_view name) const {
  const auto found = std::find_if(keys_.begin(), keys_.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  return found == keys_.end() ? -1 : static_cast<int>(found - keys_.begin());
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
    for (size_t i = 0; i < candidate.size(); ++i)
      difference |= keys_[place].secret[i] ^ candidate[i];
    const unsigned same = 0u - ((difference - 1) >> 31);  // all ones if difference was 0
    found |= same & static_cast<unsigned>(place + 1);
  }
  return static_cast<int>(found) - 1;
}

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

namespace {

struct LimitRow {
  std::string_view name;
  double high;
  void (*store)(double value, KeyLimits& limits);
};
constexpr LimitRow kLimitRows[] = {
    {"requests_per_minute", 1e9,
     [](double value, KeyLimits& limits) { limits.requests_per_minute = value; }},
    {"tokens_per_minute", 1e12,
     [](double value, KeyLimits& limits) { limits.tokens_per_minute = value; }},
    {"concurrent_requests", 1e6,
     [](double value, KeyLimits& limits) {
       limits.concurrent_requests = static_cast<int32_t>(value);
     }},
};

Status read_member(const std::string& name, const Json& value, ApiKey& key) {
  std::string* const text = name == "key"     ? &key.secret
                            : name == "name"  ? &key.name
                            : name == "group" ? &key.group
                                              : nullptr;
  if (text != nullptr) {
    if (!value.is_string()) return invalid_argument(name + " must be a text");
    *text = value.as_string();
    return ok_status();
  }
  const auto row = std::find_if(std::begin(kLimitRows), std::end(kLimitRows),
                                [&](const LimitRow& candidate) { return candidate.name == name; });
  if (row == std::end(kLimitRows)) {
    return invalid_argument(fmt::format(
        "{} is not known; there are key, name, group, requests_per_minute, tokens_per_minute and "
        "concurrent_requests",
        name));
  }
  const double number = value.is_number() ? value.as_double() : -1;
  if (!(number >= 0 && number <= row->high && number == std::trunc(number))) {
    return invalid_argument(
        fmt::format("{} must be an integer in [0, {:.0f}]; 0: no limit", name, row->high));
  }
  row->store(number, key.limits);
  return ok_status();
}

Result<ApiKey> read_key_line(std::string_view line, const KeyLimits& otherwise) {
  ApiKey key{std::string(line)};
  key.limits = otherwise;
  if (line.front() != '{') return key;
  key.secret.clear();
  const Result<Json> json = parse_json(line);
  if (!json.ok() || !json->is_object()) return invalid_argument("is neither a key nor an object");
  for (const auto& [name, value] : json->as_object()) {
    HR_RETURN_IF_ERROR(read_member(name, value, key));
  }
  if (key.secret.empty()) return invalid_argument("key is missing");
  return key;
}

// Keys that anybody can add are none. Secrets that a container mounts can often be read by all.
Status check_key_file_mode(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ok_status();  // the opening says why
  if ((info.st_mode & S_IWOTH) != 0) {
    return invalid_argument(path + ": anybody may write it, and so add API keys: chmod 600 " +
                            path);
  }
  if ((info.st_mode & (S_IRGRP | S_IWGRP | S_IROTH)) != 0) {
    log_warning("{}: others on this machine may read the API keys: chmod 600 {}", path, path);
  }
  return ok_status();
}

}  // namespace

Result<std::vector<ApiKey>> read_api_key_file(const std::string& path, const KeyLimits& otherwise) {
  HR_RETURN_IF_ERROR(check_key_file_mode(path));
  HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  std::string_view rest(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  std::vector<ApiKey> keys;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trim(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty() || line.front() == '#') continue;
    Result<ApiKey> key = read_key_line(line, otherwise);
    if (!key.ok()) {
      return invalid_argument(fmt::format("{}: line {}: {}", path, number, key.status().message()));
    }
    keys.push_back(std::move(*key));
  }
  if (keys.empty()) return invalid_argument(path + ": holds no API key");
  return keys;
}

}  // namespace headrace
