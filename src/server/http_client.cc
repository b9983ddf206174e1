#include "server/http_client.h"

#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "server/http_answer_reader.h"

namespace headrace {
namespace {

constexpr double kConnectSeconds = 10;
constexpr size_t kKeyBytesMax = 4096;

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::create(const HttpClientOptions& options) {
  HR_ASSIGN_OR_RETURN(HttpTarget target, parse_http_url(options.url));
  const std::string& key = options.api_key;
  if (!key.empty() && !is_safe_header_value(key, kKeyBytesMax)) {
    return invalid_argument("the API key has characters that no key has");
  }
  std::vector<HttpHeader> headers = {{"Content-Type", "application/json"}};
  if (!key.empty()) headers.push_back({"Authorization", "Bearer " + key});
  std::shared_ptr<const TlsTrust> trust;
  if (target.tls) {
    HR_ASSIGN_OR_RETURN(trust, TlsTrust::load(options.ca_file));
  }
  return std::unique_ptr<HttpClient>(
      new HttpClient(std::move(target), std::move(headers), std::move(trust), options));
}

HttpClient::HttpClient(HttpTarget target, std::vector<HttpHeader> headers,
                       std::shared_ptr<const TlsTrust> trust, const HttpClientOptions& options)
    : target_(std::move(target)),
      headers_(std::move(headers)),
      trust_(std::move(trust)),
      receive_seconds_(options.receive_seconds),
      answer_seconds_(options.answer_seconds) {}

Result<HttpReply> HttpClient::request(std::string_view path, std::string_view body,
                                      const OnEvent& on_event, const std::atomic<bool>* given_up) {
  HttpChannel channel;
  {
    std::lock_guard lock(mutex_);
    under_way_ = &channel;
    if (given_up != nullptr && *given_up) channel.abandon();
  }
  Result<HttpReply> reply = exchange(channel, path, body, on_event);
  std::lock_guard lock(mutex_);
  under_way_ = nullptr;
  return reply;
}

void HttpClient::cancel() {
  std::lock_guard lock(mutex_);
  if (under_way_ != nullptr) under_way_->abandon();
}

Result<HttpReply> HttpClient::exchange(HttpChannel& channel, std::string_view path,
                                       std::string_view body, const OnEvent& on_event) {
  HR_RETURN_IF_ERROR(channel.open(target_, kConnectSeconds, receive_seconds_, trust_.get()));
  const std::string_view method = body.empty() ? "GET" : "POST";
  const Status sent = channel.send_all(http_request_text(method, target_, path, headers_, body));
  if (!sent.ok()) return http_failure("send to", target_, sent.message());
  HttpAnswerReader reader([&](std::string_view data) {
    if (on_event) on_event(data);
  });
  std::vector<char> buffer(16 << 10);
  const SystemClock clock;
  const double begun = clock.now_seconds();
  while (!reader.complete()) {
    const Result<size_t> count = channel.receive(buffer.data(), buffer.size());
    if (!count.ok()) return http_failure("answer of", target_, count.status().message());
    if (*count == 0) {
      const Status ended = reader.end();
      if (!ended.ok()) return http_failure("answer of", target_, "it closed the connection");
      break;
    }
    HR_RETURN_IF_ERROR(reader.feed({buffer.data(), *count}));
    if (answer_seconds_ > 0 && clock.now_seconds() - begun > answer_seconds_) {
      return http_failure("answer of", target_, fmt::format("not in {} s", answer_seconds_));
    }
  }
  return HttpReply{.status = reader.status(), .body = reader.is_stream() ? "" : reader.body()};
}

}  // namespace headrace
