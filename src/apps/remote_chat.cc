#include "apps/remote_chat.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "terminal/safe_text.h"

namespace headrace {
namespace {

constexpr size_t kRefusalBytesMax = 400;
constexpr size_t kQueuedBytesMax = 1 << 20;       // then the server waits
constexpr int64_t kTokensMax = int64_t{1} << 40;  // sums of what servers say stay numbers
constexpr std::string_view kDone = "[DONE]";
constexpr const char* kCallsTools =
    "(the model calls a tool instead of answering, and a chat offers none)";

const std::string* text_member(const Json& object, std::string_view name) {
  const Json* member = object.find(name);
  return member != nullptr && member->is_string() ? &member->as_string() : nullptr;
}

int64_t count_member(const Json& object, std::string_view name) {
  const Json* member = object.find(name);
  return member != nullptr && member->is_int()
             ? std::clamp<int64_t>(member->as_int(), 0, kTokensMax)
             : 0;
}

double seconds_now() { return SystemClock().now_seconds(); }

// Reads the events of one answer on a thread of its own, so that the reader waits for deltas alone.
class RemoteAnswer final : public ChatAnswer {
 public:
  RemoteAnswer(HttpClient& client, std::string path, std::string body)
      : client_(client), started_(seconds_now()) {
    thread_ =
        std::thread([this, path = std::move(path), body = std::move(body)] { run(path, body); });
  }
  ~RemoteAnswer() override {
    cancel();
    thread_.join();
  }

  std::optional<ChatDelta> next() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !deltas_.empty() || ended_; });
    if (deltas_.empty()) return std::nullopt;
    ChatDelta delta = std::move(deltas_.front());
    deltas_.pop_front();
    queued_bytes_ -= delta.text.size();
    changed_.notify_all();
    return delta;
  }

  void cancel() override {
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
      deltas_.clear();
      queued_bytes_ = 0;
      changed_.notify_all();
      if (ended_) return;
    }
    client_.cancel();
  }

  Status status() const override {
    std::lock_guard lock(mutex_);
    return cancelled_ ? ok_status() : status_;
  }

  AnswerTimings timings() const override {
    std::lock_guard lock(mutex_);
    return timings_;
  }

 private:
  void run(const std::string& path, const std::string& body) {
    const Result<HttpReply> reply = client_.request(
        path, body, [this](std::string_view data) { take_event(data); }, &cancelled_);
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = outcome(reply);
    ended_ = true;
    changed_.notify_all();
  }

  Status outcome(const Result<HttpReply>& reply) const {
    if (done_) return calls_tools_ && !has_text_ ? unsupported(kCallsTools) : ok_status();
    if (!reply.ok()) return reply.status();
    if (reply->status != 200) {
      return unavailable(
          fmt::format("the server answered {}: {}", reply->status, refusal_text(reply->body)));
    }
    if (!reply->body.empty()) return corrupt("the server's answer is no stream of events");
    return unavailable("(the server broke off)");
  }

  void take_event(std::string_view data) {
    if (data == kDone) {
      std::lock_guard lock(mutex_);
      done_ = true;
      return;
    }
    const Result<Json> event = parse_json(data);
    if (!event.ok()) return;
    std::unique_lock lock(mutex_);
    const Json* error = event->find("error");
    if (error != nullptr && !error->is_null()) {
      status_ = unavailable("the server broke off: " + refusal_text(data));
      return;
    }
    if (const Json* usage = event->find("usage"); usage != nullptr && usage->is_object()) {
      timings_.prompt_tokens = count_member(*usage, "prompt_tokens");
      if (const int64_t count = count_member(*usage, "completion_tokens"); count > 0) {
        timings_.predicted_tokens = count;
      }
    }
    const Json* choices = event->find("choices");
    if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return;
    const Json& choice = choices->as_array()[0];
    if (const Json* delta = choice.find("delta")) take_delta(*delta, lock);
    if (text_member(choice, "finish_reason") != nullptr) done_ = true;
  }

  void take_delta(const Json& delta, std::unique_lock<std::mutex>& lock) {
    const Json* calls = delta.find("tool_calls");
    if (calls != nullptr && calls->is_array() && !calls->as_array().empty()) calls_tools_ = true;
    const std::string* thought = text_member(delta, "reasoning_content");
    if (thought == nullptr) thought = text_member(delta, "reasoning");
    const std::string* text = text_member(delta, "content");
    if (thought != nullptr && !thought->empty()) add({.text = *thought, .thought = true}, lock);
    if (text == nullptr || text->empty()) return;
    has_text_ = true;
    add({.text = *text}, lock);
  }

  // Waits while the reader is far behind: the server's answer then waits in its connection.
  void add(ChatDelta delta, std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [this] { return queued_bytes_ < kQueuedBytesMax || cancelled_; });
    if (cancelled_) return;
    const double now = seconds_now();
    if (timings_.predicted_tokens == 0) {
      first_ = now;
      timings_.prompt_seconds = now - started_;
    }
    ++timings_.predicted_tokens;  // until the usage says better
    timings_.predicted_seconds = now - first_;
    queued_bytes_ += delta.text.size();
    deltas_.push_back(std::move(delta));
    changed_.notify_all();
  }

  HttpClient& client_;
  const double started_;
  double first_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ChatDelta> deltas_;
  size_t queued_bytes_ = 0;  // in deltas_
  AnswerTimings timings_;
  Status status_;
  bool ended_ = false, done_ = false;
  bool calls_tools_ = false, has_text_ = false;
  std::atomic<bool> cancelled_{false};  // set under mutex_
  std::thread thread_;
};

// The path of the API: a URL may be the server's, the API's, or that of its chat completions.
std::string api_path(std::string path) {
  constexpr std::string_view kChat = "/chat/completions";
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (path.ends_with(kChat)) path.resize(path.size() - kChat.size());
  return path.empty() || path == "/" ? "/v1" : path;
}

}  // namespace

Result<std::unique_ptr<RemoteChat>> RemoteChat::connect(const RemoteChatOptions& options) {
  Result<std::unique_ptr<HttpClient>> client =
      HttpClient::create({.url = options.url, .api_key = options.api_key});
  if (!client.ok()) return client.status().with_context("--url");
  std::string path = api_path((*client)->target().path);
  std::unique_ptr<RemoteChat> chat(new RemoteChat(*std::move(client), std::move(path)));
  chat->model_ = options.model;
  if (!options.model.empty()) return chat;
  const Result<std::vector<std::string>> models = chat->models();
  if (!models.ok()) return models.status().with_context(options.url);
  if (models->empty()) {
    return invalid_argument(fmt::format("{} lists no model: name one with -m NAME", options.url));
  }
  chat->model_ = models->front();
  return chat;
}

RemoteChat::RemoteChat(std::unique_ptr<HttpClient> client, std::string base_path)
    : client_(std::move(client)), base_path_(std::move(base_path)) {}

std::string RemoteChat::title() const {
  const HttpTarget& target = client_->target();
  return fmt::format("{} at {}://{}:{}", model_, target.tls ? "https" : "http", target.host,
                     target.port);
}

Result<std::unique_ptr<ChatAnswer>> RemoteChat::answer(const Json& messages,
                                                       const ChatSampling& sampling) {
  return std::unique_ptr<ChatAnswer>(
      std::make_unique<RemoteAnswer>(*client_, base_path_ + "/chat/completions",
                                     write_json(chat_request_body(model_, messages, sampling))));
}

Result<int64_t> RemoteChat::count_tokens(const Json&) {
  return unsupported("the server counts tokens, and tells when it has answered");
}

Result<std::vector<std::string>> RemoteChat::models() {
  HR_ASSIGN_OR_RETURN(const HttpReply reply, client_->request(base_path_ + "/models"));
  if (reply.status != 200) {
    return unavailable(
        fmt::format("/models was answered {}: {}", reply.status, refusal_text(reply.body)));
  }
  const Result<Json> list = parse_json(reply.body);
  if (!list.ok()) {
    return corrupt("/models: " + safe_line(list.status().message(), kRefusalBytesMax));
  }
  const Json* data = list->find("data");
  if (data == nullptr || !data->is_array()) return corrupt("/models has no list of models");
  std::vector<std::string> names;
  for (const Json& each : data->as_array()) {
    if (const std::string* name = text_member(each, "id")) names.push_back(*name);
  }
  return names;
}

Status RemoteChat::use_model(const std::string& name) {
  HR_ASSIGN_OR_RETURN(const std::vector<std::string> names, models());
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return not_found(
        fmt::format("the server has no '{}': it has {}", name, fmt::join(names, ", ")));
  }
  model_ = name;
  return ok_status();
}

Json chat_request_body(const std::string& model, const Json& messages,
                       const ChatSampling& sampling) {
  Json body = Json::object();
  body.set("model", model).set("messages", messages).set("stream", true);
  body.set("stream_options", Json::object().set("include_usage", true));
  const SamplingParams& params = sampling.params;
  // The shortest decimal that is the float: 0.2 and not 0.20000000298.
  const auto number = [](float value) { return std::stod(fmt::format("{}", value)); };
  for (const std::string& name : sampling.named) {
    if (name == "temperature") body.set(name, number(params.temperature));
    if (name == "top_p") body.set(name, number(params.top_p));
    if (name == "top_k") body.set(name, params.top_k);
    if (name == "min_p") body.set(name, number(params.min_p));
    if (name == "repetition_penalty") body.set(name, number(params.repetition_penalty));
    if (name == "presence_penalty") body.set(name, number(params.presence_penalty));
    if (name == "frequency_penalty") body.set(name, number(params.frequency_penalty));
    if (name == "max_tokens" && params.max_tokens >= 0) body.set(name, params.max_tokens);
    if (name == "seed" && params.seed) body.set(name, static_cast<int64_t>(*params.seed));
  }
  if (!sampling.stops.empty()) {
    Json stops = Json::array();
    for (const std::string& stop : sampling.stops) stops.push(stop);
    body.set("stop", std::move(stops));
  }
  return body;
}

std::string refusal_text(std::string_view body) {
  const Result<Json> json = parse_json(body);
  const Json* error = json.ok() ? json->find("error") : nullptr;
  const Json* holder = error != nullptr && error->is_object() ? error
                       : json.ok()                            ? &*json
                                                              : nullptr;
  for (const std::string_view name : {"message", "detail", "error"}) {
    const std::string* text = holder != nullptr ? text_member(*holder, name) : nullptr;
    if (text != nullptr) return safe_line(*text, kRefusalBytesMax);
  }
  return safe_line(body.substr(0, body.find('\n')), kRefusalBytesMax);
}

}  // namespace headrace
