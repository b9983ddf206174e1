#include "hub/hub_answer.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace headrace {
namespace {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

}  // namespace

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || read != end || value < 0) return std::nullopt;
  return value;
}

void HubAnswer::add_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos) return;
  headers_.emplace_back(in_small_letters(without_blanks(line.substr(0, colon))),
                        without_blanks(line.substr(colon + 1)));
}

void HubAnswer::begin() { last_ = headers_.size(); }

std::string HubAnswer::header(std::string_view name) const {
  for (size_t i = last_; i < headers_.size(); ++i) {
    if (headers_[i].first == name) return headers_[i].second;
  }
  return {};
}

std::string HubAnswer::first_header(std::string_view name) const {
  for (const auto& [each, value] : headers_) {
    if (each == name) return value;
  }
  return {};
}

std::optional<int64_t> HubAnswer::content_length() const {
  return whole_number(header("content-length"));
}

std::optional<std::pair<int64_t, int64_t>> HubAnswer::content_range() const {
  const std::string value = header("content-range");
  std::string_view text = value;
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == text.npos || slash == text.npos || slash < dash) return std::nullopt;
  const auto first = whole_number(text.substr(0, dash));
  const auto total = whole_number(text.substr(slash + 1));
  if (!first || !total) return std::nullopt;
  return std::pair(*first, *total);
}

std::optional<double> HubAnswer::retry_after() const {
  const auto seconds = whole_number(header("retry-after"));
  if (!seconds) return std::nullopt;
  return static_cast<double>(*seconds);
}

std::string_view origin_of_url(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme == url.npos) return {};
  return url.substr(0, url.find_first_of("/?#", scheme + 3));
}

std::string redirect_target(std::string_view url, const std::string& location) {
  if (location.empty() || location.find_first_of("\r\n\t ") != location.npos) return {};
  std::string target = location;
  if (location.starts_with("//")) {
    target = std::string(url.substr(0, url.find(':') + 1)) + location;
  } else if (location.starts_with('/')) {
    target = std::string(origin_of_url(url)) + location;
  } else if (location.find("://") == location.npos) {
    const std::string_view path = url.substr(0, url.find_first_of("?#"));
    const size_t origin = origin_of_url(url).size();
    const size_t slash = path.rfind('/');
    target = std::string(path.substr(0, std::max(origin, slash))) + "/" + location;
  }
  const bool secure = target.starts_with("https://");
  const bool plain = target.starts_with("http://") && !url.starts_with("https://");
  return secure || plain ? target : std::string();
}

}  // namespace headrace
