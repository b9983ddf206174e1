// Asks another server over HTTP and reads its answers, event streams as they come. Blocking; each
// request has a connection of its own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http_channel.h"

namespace headrace {

struct HttpClientOptions {
  std::string url;
  std::string api_key;         // sent as a bearer's with every request; empty: none
  std::string ca_file;         // as of TlsTrust
  double receive_seconds = 0;  // in which something must come; 0: a busy server may take long
  double answer_seconds = 0;   // in which all of an answer must come; 0: no bound
};

struct HttpReply {
  int status = 0;
  std::string body;  // empty of an event stream
};

// One thread, but for cancel().
class HttpClient {
 public:
  using OnEvent = std::function<void(std::string_view data)>;

  // kInvalidArgument: no URL, or a key that no header can hold.
  static Result<std::unique_ptr<HttpClient>> create(const HttpClientOptions& options);

  const HttpTarget& target() const { return target_; }

  // GET, or with a body of JSON POST. `path` as sent; the URL's own is not put in front of it.
  // kUnavailable where no answer came, or not to its end. An answer of any status is one. A request
  // whose `given_up` is set does not begin.
  Result<HttpReply> request(std::string_view path, std::string_view body = {},
                            const OnEvent& on_event = nullptr,
                            const std::atomic<bool>* given_up = nullptr);

  // Ends a request that is under way; if there is none, nothing. Any thread. Where the request may
  // just be about to begin, set its `given_up` first.
  void cancel();

 private:
  HttpClient(HttpTarget target, std::vector<HttpHeader> headers,
             std::shared_ptr<const TlsTrust> trust, const HttpClientOptions& options);
  Result<HttpReply> exchange(HttpChannel& channel, std::string_view path, std::string_view body,
                             const OnEvent& on_event);

  const HttpTarget target_;
  const std::vector<HttpHeader> headers_;
  const std::shared_ptr<const TlsTrust> trust_;  // nullptr: no TLS
  const double receive_seconds_, answer_seconds_;
  std::mutex mutex_;
  HttpChannel* under_way_ = nullptr;
};

}  // namespace headrace
