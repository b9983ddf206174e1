// Routes that load and unload models: llama.cpp's /models/load and /models/unload, vLLM's /sleep
// and /wake_up. Each answers when it is done.
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/error_response.h"
#include "server/handlers.h"
#include "server/model_wait.h"
#include "server/ollama_request.h"
#include "server/query.h"

namespace headrace {
namespace {

void respond_success(const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response;
  response.body = write_json(Json::object().set("success", true));
  exchange->respond(std::move(response));
}

// The place of the body's `model`; nothing, and it is answered, where it names none.
std::optional<size_t> named_model(RouteCall& call) {
  const Json* name = call.body.find("model");
  if (!name || !name->is_string() || name->as_string().empty()) {
    call.exchange->respond(
        error_response(invalid_argument("model must be the name of a model", "model")));
    return std::nullopt;
  }
  const ReadyModel* const only = call.state.model();
  const auto place = call.state.models.find(name->as_string());
  if (place && !(only && !only->serves(name->as_string()))) return place;
  call.exchange->respond(error_response(unknown_model(name->as_string())));
  return std::nullopt;
}

// Those of ?model=, else all that are in one of these states. Nothing, and it is answered, where
// there are none yet or none of that name.
std::optional<std::vector<size_t>> models_of_query(RouteCall& call) {
  const ModelPool& models = call.state.models;
  if (!models.is_open()) {
    call.exchange->respond(error_response(503, "Loading model"));
    return std::nullopt;
  }
  std::vector<size_t> places;
  if (const auto name = query_value(call.request.query, "model")) {
    const auto place = models.find(*name);
    if (place) return std::vector<size_t>{*place};
    call.exchange->respond(error_response(unknown_model(*name)));
    return std::nullopt;
  }
  for (size_t place = 0; place < models.size(); ++place) places.push_back(place);
  return places;
}

// A server whose one model stays has none that sleeps.
bool refuse_sleep(RouteCall& call) {
  if (!call.state.model()) return false;
  call.exchange->respond(error_response(
      400, fmt::format("{} is not supported: the model stays in memory for as long as the server "
                       "runs (--enable-sleep-mode lets it sleep)",
                       call.request.path)));
  return true;
}

// Answers when each of several has told its end: with the first error, if any.
class JoinedAnswer {
 public:
  JoinedAnswer(std::shared_ptr<Exchange> exchange, size_t parts)
      : exchange_(std::move(exchange)), left_(parts) {}

  void tell(const Status& status) {
    if (!status.ok() && !failed_.exchange(true)) {
      const bool internal = status.code() == StatusCode::kInternal;
      exchange_->respond(internal ? error_response(500, status.message()) : error_response(status));
    }
    if (left_.fetch_sub(1) == 1 && !failed_) respond_success(exchange_);
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
  std::atomic<size_t> left_;
  std::atomic<bool> failed_{false};
};

}  // namespace

void follow_keep_alive(RouteCall& call) {
  const Json* value = call.body.find("keep_alive");
  if (!value || !call.state.models.options().follows_keep_alive) return;
  const auto seconds = keep_alive_seconds(*value);
  const auto place = call.state.models.find(call.model->served.names.front());
  if (seconds && place) call.state.models.keep_alive(*place, *seconds);
}

void handle_load_model(RouteCall& call) {
  const auto place = named_model(call);
  if (!place) return;
  wait_for_model(call.state, call.exchange, *place, ModelPool::Why::kOrder,
                 [exchange = call.exchange](const ModelLease&) { respond_success(exchange); });
}

void handle_unload_model(RouteCall& call) {
  const auto place = named_model(call);
  if (!place) return;
  const auto answer = std::make_shared<JoinedAnswer>(call.exchange, 1);
  call.state.models.unload(*place, ModelState::kUnloaded,
                           [answer](const Status& status) { answer->tell(status); });
}

// Both levels give all of the model's memory back: what is left is what the system keeps of its
// file. Requests under way end first; the next one wakes it.
void handle_sleep(RouteCall& call) {
  if (refuse_sleep(call)) return;
  const auto level = query_integer(call.request.query, "level", 1, 1, 2);
  if (!level.ok()) return call.exchange->respond(error_response(level.status()));
  auto places = models_of_query(call);
  if (!places) return;
  ModelPool& models = call.state.models;
  const bool named = query_value(call.request.query, "model").has_value();
  if (!named && models.size() > 1) {
    std::erase_if(*places,
                  [&](size_t place) { return models.status(place).state != ModelState::kReady; });
  }
  if (places->empty()) return respond_success(call.exchange);
  const auto answer = std::make_shared<JoinedAnswer>(call.exchange, places->size());
  for (const size_t place : *places) {
    models.unload(place, ModelState::kSleeping,
                  [answer](const Status& status) { answer->tell(status); });
  }
}

void handle_wake_up(RouteCall& call) {
  if (refuse_sleep(call)) return;
  auto places = models_of_query(call);
  if (!places) return;
  ModelPool& models = call.state.models;
  std::erase_if(*places,
                [&](size_t place) { return models.status(place).state != ModelState::kSleeping; });
  if (places->empty()) return respond_success(call.exchange);
  const auto answer = std::make_shared<JoinedAnswer>(call.exchange, places->size());
  for (const size_t place : *places) {
    models.acquire(place, ModelPool::Why::kOrder,
                   [answer](const Result<ModelLease>& model) { answer->tell(model.status()); });
  }
}

// Whether no model is in memory and one of them sleeps.
void handle_is_sleeping(RouteCall& call) {
  bool sleeps = false, loaded = false;
  if (call.state.models.is_open()) {
    const auto places = models_of_query(call);
    if (!places) return;
    for (const size_t place : *places) {
      const ModelState state = call.state.models.status(place).state;
      sleeps = sleeps || state == ModelState::kSleeping;
      loaded = loaded || state == ModelState::kReady;
    }
  }
  respond_json(call, Json::object().set("is_sleeping", sleeps && !loaded));
}

}  // namespace headrace
