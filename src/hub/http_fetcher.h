// GET over HTTP and HTTPS for downloads: redirects are followed under rules, connections are kept,
// a server's certificate is verified.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "hub/curl_library.h"
#include "hub/hub_answer.h"

namespace headrace {

struct HttpFetch {
  std::string url;
  std::string token;                                 // sent where `url` leads, and to no other host
  std::string accept;                                // empty: anything
  std::optional<std::pair<int64_t, int64_t>> range;  // bytes [first, second)
  std::string if_range;  // an ETag or date: of another version the whole file comes, not the range
};

// Takes bytes of an answer of status 200 or 206. False: no more of them.
using HttpSink = std::function<bool(const HubAnswer&, std::string_view bytes)>;

// One thread's.
class HttpFetcher {
 public:
  // `stopped` is asked by this thread, once a second at least, and ends a fetch.
  static Result<std::unique_ptr<HttpFetcher>> open(std::function<bool()> stopped);
  ~HttpFetcher();
  HttpFetcher(const HttpFetcher&) = delete;
  HttpFetcher& operator=(const HttpFetcher&) = delete;

  // The answer, of whatever status, when its body has gone to the sink or the sink had enough.
  // kUnavailable: trouble of the network, which may pass; kInvalidArgument: what would not, as a
  // certificate that is wrong. The line names the host and the reason.
  Result<HubAnswer> get(const HttpFetch& fetch, const HttpSink& sink);
  // The whole body, into `body`. kCorrupt: it has more than `bytes_max`.
  Result<HubAnswer> get_text(const HttpFetch& fetch, std::string& body, size_t bytes_max);
  // Sleeps. kUnavailable: `stopped` said so before it was over.
  Status wait(double seconds);

 private:
  HttpFetcher(const CurlLibrary& curl, std::function<bool()> stopped);
  Status perform(const HttpFetch& fetch, HubAnswer& answer, const HttpSink& sink);

  const CurlLibrary& curl_;
  const std::function<bool()> stopped_;
  CURL* const handle_;
};

}  // namespace headrace
