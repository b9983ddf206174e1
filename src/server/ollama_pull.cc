// Ollama's /api/pull: a model comes from a hub or registry, told in lines of JSON as it comes.
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "server/error_response.h"
#include "server/handlers.h"
#include "server/model_fetches.h"
#include "server/server_state.h"

namespace headrace {

bool ModelFetches::begin(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stops_ || running_.exchange(true)) return false;
  if (thread_.joinable()) thread_.join();  // of one that has ended
  thread_ = std::thread([this, work = std::move(work)]() mutable {
    work();
    running_ = false;
    work = nullptr;  // what it tells when it goes: who hears it may begin the next
  });
  return true;
}

void ModelFetches::stop() {
  stops_ = true;
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) thread_.join();
}

namespace {

constexpr auto kTellEvery = std::chrono::milliseconds(100);

Json pull_status(std::string_view status) { return Json::object().set("status", status); }

// One pull: what the thread has to tell its client, who may leave.
class Pull final : public ExchangeObserver, public std::enable_shared_from_this<Pull> {
 public:
  Pull(ServerState& state, std::shared_ptr<Exchange> exchange, std::string name, bool streams)
      : state_(state), exchange_(std::move(exchange)), name_(std::move(name)), streams_(streams) {}

  void on_peer_gone() override { left_ = true; }
  void on_writable() override {}

  // On a text thread.
  void begin() {
    exchange_->post([self = shared_from_this()] {
      self->exchange_->observe(self);
      if (self->streams_) {
        HttpResponse head;
        head.content_type = "application/x-ndjson";
        self->exchange_->begin_stream(std::move(head));
      }
      self->tell(pull_status("pulling manifest"));
      auto ending = std::make_shared<Ending>(self);
      (void)self->state_.fetches.begin([ending] { ending->status = ending->pull->run(); });
    });
  }

 private:
  // Tells how it ended, once nothing of it is under way.
  struct Ending {
    explicit Ending(std::shared_ptr<Pull> of) : pull(std::move(of)) {}
    Ending(const Ending&) = delete;
    ~Ending() {
      try {
        pull->end(status);
      } catch (const std::exception& error) {
        log_error("/api/pull: its end was not told: {}", error.what());
      }
    }

    const std::shared_ptr<Pull> pull;
    Status status = unavailable("another model is being pulled: pull this one behind it");
  };

  // On the thread of the fetches.
  Status run() {
    try {
      return fetch();
    } catch (const std::exception& error) {
      log_error("/api/pull threw: {}", error.what());
      return internal_error("internal error");
    }
  }

  Status fetch() {
    const auto stopped = [this] { return left_ || state_.fetches.stops(); };
    log_info("/api/pull: {} is fetched", name_);
    HR_ASSIGN_OR_RETURN(
        ServedModelSpec spec,
        state_.fetches.fetcher()->fetch(
            name_, stopped, [this](int64_t there, int64_t all) { on_bytes(there, all); }));
    tell(pull_status("writing manifest"));
    HR_RETURN_IF_ERROR(state_.models.add(std::move(spec)));
    log_info("/api/pull: {} is served", name_);
    return ok_status();
  }

  void on_bytes(int64_t there, int64_t all) {
    const auto now = std::chrono::steady_clock::now();
    if (there < all && now < told_ + kTellEvery) return;
    told_ = now;
    Json line = pull_status("pulling " + name_);
    tell(line.set("digest", name_).set("total", all).set("completed", there));
  }

  void tell(const Json& line) {
    if (!streams_) return;
    exchange_->post([exchange = exchange_, text = write_json(line) + "\n"] {
      if (!exchange->over_unsent_limit()) exchange->write(text);
    });
  }

  // Of what went wrong here, on this machine, clients are told no more than that.
  static Status told_of(const Status& status) {
    const StatusCode code = status.code();
    const bool theirs = code == StatusCode::kNotFound || code == StatusCode::kInvalidArgument ||
                        code == StatusCode::kUnavailable || status.ok();
    return theirs ? status : internal_error("the model was not fetched: the server's log says why");
  }

  void end(const Status& happened) {
    if (!happened.ok()) log_warning("/api/pull: {}: {}", name_, happened.message());
    const Status status = told_of(happened);
    if (!streams_) {
      if (!status.ok()) return exchange_->respond(error_response(status));
      HttpResponse response;
      response.body = write_json(pull_status("success"));
      return exchange_->respond(std::move(response));
    }
    const Json last =
        status.ok() ? pull_status("success") : Json::object().set("error", status.message());
    exchange_->post(
        [exchange = exchange_, text = write_json(last) + "\n"] { exchange->end_stream(text); });
  }

  ServerState& state_;
  const std::shared_ptr<Exchange> exchange_;
  const std::string name_;
  const bool streams_;
  std::atomic<bool> left_{false};
  std::chrono::steady_clock::time_point told_;
};

void respond_pulled(RouteCall& call, bool streams) {
  const Json done = pull_status("success");
  if (!streams) return respond_json(call, done);
  HttpResponse response;
  response.content_type = "application/x-ndjson";
  response.body = write_json(pull_status("pulling manifest")) + "\n" + write_json(done) + "\n";
  call.exchange->respond(std::move(response));
}

}  // namespace

// Programs pull a model before they use it: of one that is served there is nothing to fetch.
void handle_ollama_pull(RouteCall& call) {
  const Json* stream = call.body.find("stream");
  if (stream && !stream->is_null() && !stream->is_bool()) {
    return call.exchange->respond(error_response(field_error("stream", "true or false", *stream)));
  }
  const bool streams = !stream || *stream != Json(false);
  const Result<size_t> place = find_ollama_model(call);
  if (place.ok()) return respond_pulled(call, streams);
  const bool unknown = place.status().code() == StatusCode::kNotFound;
  if (!unknown || call.state.fetches.fetcher() == nullptr) {
    const Status status = place.status().with_context(
        unknown ? "/api/pull fetches nothing here (--allow-pull)" : "/api/pull");
    return call.exchange->respond(error_response(status));
  }
  const Json* name = call.body.find("model");
  if (!name || name->is_null()) name = call.body.find("name");
  if (!name || !name->is_string()) return call.exchange->respond(error_response(place.status()));
  std::make_shared<Pull>(call.state, call.exchange, without_latest(name->as_string()), streams)
      ->begin();
}

}  // namespace headrace
