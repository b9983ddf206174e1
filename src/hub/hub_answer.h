// What a server says before the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace {

// The last answer of a chain of redirects, and the headers of all of them.
class HubAnswer {
 public:
  int status = 0;
  std::string url;  // whose answer it is

  // A line "name: value" of the answer that came last.
  void add_header(std::string_view line);
  // What comes now is of another answer.
  void begin();

  // Empty: there is none. `name` is in small letters. Of the last answer alone, or the value that
  // came first on the way to it, as the hub itself said it.
  std::string header(std::string_view name) const;
  std::string first_header(std::string_view name) const;
  std::optional<int64_t> content_length() const;
  // Of "content-range: bytes 5-9/20": 5 and 20.
  std::optional<std::pair<int64_t, int64_t>> content_range() const;
  // Of "retry-after: 3". None, or a date: empty.
  std::optional<double> retry_after() const;

 private:
  std::vector<std::pair<std::string, std::string>> headers_;
  size_t last_ = 0;  // index of the last answer's first
};

// Digits alone; empty: it is no such number.
std::optional<int64_t> whole_number(std::string_view text);

// "https://host:80/x" -> "https://host:80", to which a token belongs.
std::string_view origin_of_url(std::string_view url);

// Where `location`, absolute or relative, leads from `url`. Empty: nowhere where HTTP goes, or from
// HTTPS to plain HTTP.
std::string redirect_target(std::string_view url, const std::string& location);

}  // namespace headrace
