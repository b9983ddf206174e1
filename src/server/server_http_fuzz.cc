// libFuzzer target: raw bytes in random segments through the reading path of a connection. The
// requests read must not depend on the segments, and limits must hold.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "server/http_request_reader.h"

namespace headrace {
namespace {

HttpLimits small_limits() {
  HttpLimits limits;
  limits.head_bytes_max = 1024;
  limits.line_bytes_max = 256;
  limits.header_count_max = 8;
  limits.body_bytes_max = 512;
  limits.chunk_count_max = 16;
  return limits;
}

// One line per request read: what a route would see, or the verdict.
std::vector<std::string> read_stream(std::string_view bytes, uint64_t seed) {
  static const HttpLimits limits = small_limits();
  Rng rng(seed);
  std::vector<std::string> seen;
  HttpRequestReader reader(limits);
  std::string inbox;
  while (!bytes.empty() || !inbox.empty()) {
    const size_t count =
        seed == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 1 + rng.below(16));
    inbox.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    inbox.erase(0, reader.feed(inbox));
    if (reader.phase() == HttpRequestReader::Phase::kBody) {  // it stops behind the head once
      inbox.erase(0, reader.feed(inbox));
    }
    if (reader.phase() == HttpRequestReader::Phase::kFailed) {
      seen.push_back(std::to_string(reader.error().status) + std::string(reader.error().message));
      return seen;
    }
    if (reader.phase() != HttpRequestReader::Phase::kComplete) {
      CHECK(inbox.empty());
      continue;
    }
    const HttpRequest& request = reader.request();
    CHECK(request.body.size() <= limits.body_bytes_max);
    CHECK(request.headers.size() <= static_cast<size_t>(limits.header_count_max));
    CHECK(!request.path.empty() && request.path[0] == '/');
    std::string line =
        request.method + " " + request.path + "?" + request.query + "\n" + request.body;
    for (const HttpHeader& header : request.headers) {
      CHECK(header.value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
      line += "\n" + header.name + "=" + header.value;
    }
    seen.push_back(line + (request.keep_alive ? "+" : "-"));
    reader.~HttpRequestReader();
    new (&reader) HttpRequestReader(limits);
  }
  return seen;
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  CHECK(read_stream(bytes, 0) == read_stream(bytes, 1 + data[0]));
  return 0;
}
