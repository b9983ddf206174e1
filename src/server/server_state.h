// What all requests of one server share.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/answer_budget.h"
#include "server/api_keys.h"
#include "server/background_response.h"
#include "server/key_quota.h"
#include "server/made_models.h"
#include "server/model_fetches.h"
#include "server/model_pool.h"
#include "server/post_box.h"
#include "server/ready_model.h"
#include "server/request_fields.h"
#include "server/request_guard.h"
#include "server/response_store.h"
#include "server/served_model.h"
#include "server/server_limits.h"
#include "server/text_pool.h"
#include "server/trace_exporter.h"

namespace headrace {

class BatchService;
class GenerationSession;

// How far an answer is: written by its session, read by whoever asks. Any thread.
struct SessionProgress {
  uint64_t id = 0;                    // in order of arrival
  const ReadyModel* model = nullptr;  // a name only: it may be gone
  int64_t prompt_tokens = 0;          // of all its prompts
  int64_t generated_max = 0;          // of all its choices
  std::string tenant;                 // the name of its API key; empty: none
  uint64_t adapter = 0;               // its key; 0: none
  std::atomic<bool> admitted{false};
  std::atomic<int64_t> cached_tokens{0}, generated{0};
};

// The answers under way, so that a server that stops can let go of them.
class SessionRegistry {
 public:
  // Gives `progress` its id.
  void add(const std::shared_ptr<GenerationSession>& session,
           std::shared_ptr<SessionProgress> progress);
  void remove(GenerationSession* session);
  size_t count() const;
  std::vector<std::shared_ptr<GenerationSession>> alive() const;
  // Of those of `model` that have left the queue, in order of arrival.
  std::vector<std::shared_ptr<const SessionProgress>> under_way(const ReadyModel& model) const;
  // How many of each tenant run and wait.
  struct OpenCounts {
    int64_t running = 0, waiting = 0;
  };
  std::map<std::string, OpenCounts> by_tenant() const;
  // The same of each adapter of `model`.
  std::map<uint64_t, OpenCounts> by_adapter(const ReadyModel& model) const;

 private:
  struct Entry {
    std::weak_ptr<GenerationSession> session;
    std::shared_ptr<SessionProgress> progress;
  };
  mutable std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::unordered_map<GenerationSession*, Entry> sessions_;
};

// Members are safe from any thread.
struct ServerState {
  // `run_later`: the server's threads, for what the engine's thread has to tell.
  ServerState(RequestLimits request_limits, ApiKeys api_keys, std::vector<std::string> origins,
              PostBox::RunLater run_later = nullptr)
      : limits(request_limits),
        keys(std::move(api_keys)),
        quotas(keys, clock),
        responses(request_limits.stored_response_bytes_max),
        allowed_origins(std::move(origins)),
        post_box(std::move(run_later)) {}

  const RequestLimits limits;
  const ApiKeys keys;
  SystemClock clock;
  const KeyQuotas quotas;
  ResponseStore responses;
  MadeModels made_models;
  BackgroundResponses background_responses;  // of those that are under way
  AnswerBudget embedding_budget{limits.embedding_bytes_max};
  AnswerBudget answer_budget{limits.answers_bytes_max};  // of those that are not streamed
  const std::vector<std::string> allowed_origins;        // for browsers; "*" = all
  PostBox post_box;
  TextPool text_pool{kTextsWaitingMax};  // the server starts and stops it

  // Set before all else.
  RequestGuard guard;
  bool force_usage = false;               // streams end with their usage, asked for or not
  bool page = true;                       // whether `/` is the web page for browsers
  ApiKeys metrics_keys;                   // none: /metrics is open
  std::unique_ptr<TraceExporter> traces;  // nullptr: no spans are sent

  std::atomic<bool> draining{false};
  BatchService* batches = nullptr;  // nullptr: no files and no batches. Set before all else
  SessionRegistry sessions;

  // Behind all that models tell when they go. They go before this does (close()).
  ModelPool models{clock, limits.pins};
  ModelFetches fetches;  // into `models`; ends before they do
  // The model of a server that has one, which stays; nullptr while it is loaded, and where models
  // come and go.
  const ReadyModel* model() const { return models.only(); }
  // That one. Its pointers outlive this. Once.
  Status set_model(ServedModel served);

  // `shown_model`: RouteCall's.
  FieldContext context_of(const ReadyModel& ready, std::string_view shown_model = {}) const {
    const bool generates = ready.generates();
    return {.limits = limits,
            .vocab_size = ready.vocab_size(),
            .slo_classes = generates ? ready.served.engine->options().scheduler.slo_classes
                                     : std::span<const SloClass>(),
            .defaults = ready.served.sampling,
            .reads_calls = ready.output.tools != nullptr,
            .reads_reasoning = ready.output.reasoning != nullptr,
            .takes_forms = ready.forms != nullptr,
            .enforces_calls = ready.forms != nullptr && enforces_calls(ready.output.tools),
            .bounds_thoughts = ready.forms != nullptr && bounds_thoughts(ready.output.reasoning),
            .shown_model = shown_model};
  }
  // Of a body. A prompt of token ids may have as many as a text may be encoded to.
  JsonLimits json_limits() const;

 private:
  // Bodies that wait to be read: one a connection, and those whose connection has gone meanwhile.
  static constexpr size_t kTextsWaitingMax = 8192;
};

int64_t unix_seconds();

}  // namespace headrace
