#include "server/embedding_session.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "server/error_response.h"

namespace headrace {

// Shared by the session and the engine's sink; whoever is first answers.
struct EmbeddingSession::Answering {
  Answering(ServerState& of, EmbeddingPlan what, std::shared_ptr<Exchange> where)
      : state(of), plan(std::move(what)), exchange(std::move(where)) {}

  void respond(HttpResponse response) {
    if (answered.exchange(true)) return;
    plan.lease.reset();  // before the client can know, who may send its next request
    for (HttpHeader& header : plan.headers) response.headers.push_back(std::move(header));
    response.held = std::move(plan.vectors);
    exchange->respond(std::move(response));
  }

  // On a text thread: a long list takes milliseconds to write.
  void respond(EmbeddingResult result) {
    if (!result.status.ok()) return respond(error_response(result.status));
    const ReadyModel& model = *plan.model;
    const EmbeddingRunner& runner = model.served.embedder->runner();
    const auto width = static_cast<size_t>(runner.dimensions());
    const auto dimensions = static_cast<size_t>(plan.dimensions);
    for (size_t at = 0; at < result.vectors.size(); at += width) {
      shorten_vector(runner, std::span(result.vectors).subspan(at, width), dimensions);
    }
    plan.answer.seconds = state.clock.now_seconds() - arrival_time;
    model.metrics->on_prompt_tokens(plan.answer.prompt_tokens, 0);
    model.metrics->on_choice_finished(FinishReason::kStop);
    model.metrics->on_request_finished({.total = plan.answer.seconds,
                                        .prompt = plan.answer.seconds,
                                        .prompt_tokens = plan.answer.prompt_tokens,
                                        .prompt_tokens_computed = plan.answer.prompt_tokens});
    HttpResponse response;
    response.body = plan.write({result.vectors, width, dimensions}, plan.answer);
    respond(std::move(response));
  }

  ServerState& state;
  EmbeddingPlan plan;
  const std::shared_ptr<Exchange> exchange;
  const double arrival_time = state.clock.now_seconds();
  std::atomic<bool> answered{false};
};

void EmbeddingSession::start(ServerState& state, EmbeddingPlan plan,
                             std::shared_ptr<Exchange> exchange) {
  auto texts = std::move(plan.texts);
  auto answering = std::make_shared<Answering>(state, std::move(plan), std::move(exchange));
  std::shared_ptr<EmbeddingSession> session(new EmbeddingSession(state, answering));
  answering->exchange->observe(session);
  EmbeddingEngine& engine = *answering->plan.model->served.embedder;
  auto sink = [answering](EmbeddingResult result) {
    auto shared = std::make_shared<EmbeddingResult>(std::move(result));
    const bool taken = answering->state.text_pool.run(
        [answering, shared] { answering->respond(std::move(*shared)); });
    if (!taken) answering->respond(error_response(503, "the server is busy or shutting down"));
  };
  const Result<RequestId> request = engine.submit(std::move(texts), std::move(sink));
  if (!request.ok()) {
    const Status& status = request.status();
    return answering->respond(
        status.code() == StatusCode::kExhausted
            ? too_many_requests(status.message(), engine.retry_after_seconds())
            : error_response(status));
  }
  session->request_ = *request;
  session->watch_queue(state.limits.queue_seconds_max);
}

// An exchange that ended before start() holds no observer: its session goes at once.
EmbeddingSession::~EmbeddingSession() {
  try {
    on_peer_gone();
  } catch (const std::exception& error) {
    log_error("embeddings that nobody waits for were not cancelled: {}", error.what());
  }
}

void EmbeddingSession::on_peer_gone() {
  if (answering_->answered.exchange(true) || state_.models.is_closed()) return;
  answering_->plan.model->served.embedder->cancel(request_);
}

// Refuses late rather than never.
void EmbeddingSession::watch_queue(double seconds) {
  if (seconds <= 0) return;
  answering_->exchange->call_after(seconds, [weak = weak_from_this(), seconds] {
    const auto self = weak.lock();
    EmbeddingEngine* engine = self ? self->answering_->plan.model->served.embedder : nullptr;
    if (!self || engine->started(self->request_)) return;
    engine->cancel(self->request_);
    self->answering_->respond(error_response(
        503, fmt::format("the request waited {} s in the queue, which is the most: send it again "
                         "later",
                         seconds)));
  });
}

}  // namespace headrace
