#include "server/background_response.h"

#include <exception>

#include "base/log.h"
#include "server/error_response.h"

namespace headrace {
namespace {

std::string error_message(const HttpResponse& response) {
  const Result<Json> body = parse_json(response.body);
  const Json* error = body.ok() ? body->find("error") : nullptr;
  const Json* message = error ? error->find("message") : nullptr;
  return message && message->is_string() ? message->as_string() : "internal error";
}

}  // namespace

BackgroundResponse::BackgroundResponse(PostBox& box, size_t events_bytes_max, Keeper keeper)
    : box_(box),
      events_(events_bytes_max > 0 ? std::make_shared<EventLog>(events_bytes_max) : nullptr),
      keeper_(std::move(keeper)) {}

void BackgroundResponse::announce(const std::string& id, const Json& queued,
                                  std::string input_items, std::string previous) {
  std::lock_guard lock(mutex_);
  id_ = id;
  shown_ = queued;
  kept_.input_items = std::move(input_items);
  kept_.previous = std::move(previous);
  kept_.output_items = "[]";
}

void BackgroundResponse::complete(const Json& response, std::string output_items) {
  StoredResponse kept;
  {
    std::lock_guard lock(mutex_);
    kept_.output_items = std::move(output_items);
    kept = kept_;
  }
  kept.response = write_json(response);
  keeper_.complete(id_, std::move(kept));
  std::lock_guard lock(mutex_);
  shown_ = response;
  complete_ = true;
}

std::string BackgroundResponse::shown() const {
  std::lock_guard lock(mutex_);
  return write_json(shown_);
}

ResponseStore::Stored BackgroundResponse::kept() const {
  std::lock_guard lock(mutex_);
  return std::make_shared<const StoredResponse>(kept_);
}

std::optional<HttpResponse> BackgroundResponse::take_refusal() {
  std::lock_guard lock(mutex_);
  refused_ = refused_ || refusal_;
  return std::exchange(refusal_, std::nullopt);
}

void BackgroundResponse::cancel(std::function<void()> done) {
  post([this, done = std::move(done)] {
    const std::shared_ptr<ExchangeObserver> observer = std::move(observer_);
    observer_.reset();
    if (!ended_ && observer) observer->on_peer_gone();
    end("cancelled", "");
    done();
  });
}

// The observer is in the middle of its own call: the end comes behind it.
void BackgroundResponse::respond(HttpResponse response) {
  post([this, message = error_message(response)] { end("failed", message); });
  std::lock_guard lock(mutex_);
  refusal_ = std::move(response);
}

void BackgroundResponse::begin_stream(HttpResponse) {
  std::lock_guard lock(mutex_);
  shown_.set("status", "in_progress");
}

void BackgroundResponse::write(std::string_view bytes) {
  if (events_ && !bytes.empty()) events_->append(bytes);
}

void BackgroundResponse::end_stream(std::string_view last) {
  write(last);
  post([this] { end("failed", "the answer broke off"); });
}

void BackgroundResponse::observe(std::shared_ptr<ExchangeObserver> observer) {
  if (!ended_) observer_ = std::move(observer);
}

// `status` and `error`: of one that is not complete.
void BackgroundResponse::end(std::string_view status, std::string_view error) {
  if (std::exchange(ended_, true)) return;
  observer_.reset();
  if (events_) events_->close();
  std::optional<StoredResponse> kept;
  {
    std::lock_guard lock(mutex_);
    if (!complete_) shown_.set("status", status);
    if (!complete_ && !error.empty()) {
      shown_.set("error", Json::object().set("code", "server_error").set("message", error));
    }
    if (!refused_) kept = kept_;
    if (kept) kept->response = write_json(shown_);
  }
  if (kept && events_ && events_->whole()) kept->events = events_;
  keeper_.end(id_, std::move(kept));
}

void BackgroundResponse::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (std::exchange(running_, true)) return;
  }
  box_.put([self = shared_from_this()] { self->run_tasks(); });
}

// What its task throws ends this response and nothing else.
void BackgroundResponse::run_tasks() {
  while (true) {
    std::function<void()> task;
    {
      std::lock_guard lock(mutex_);
      if (tasks_.empty()) {
        running_ = false;
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    try {
      task();
    } catch (const std::exception& error) {
      log_error("a response in the background threw; it has failed: {}", error.what());
      end("failed", "internal error");
    }
  }
}

void BackgroundResponses::put(const std::string& owner, const std::string& id, Response response) {
  std::lock_guard lock(mutex_);
  responses_.insert_or_assign({owner, id}, std::move(response));
}

BackgroundResponses::Response BackgroundResponses::find(const std::string& owner,
                                                        const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto found = responses_.find({owner, id});
  return found == responses_.end() ? nullptr : found->second;
}

bool BackgroundResponses::erase(const std::string& owner, const std::string& id) {
  std::lock_guard lock(mutex_);
  return responses_.erase({owner, id}) > 0;
}

}  // namespace headrace
