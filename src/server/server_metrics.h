// Counters and histograms under the names that vLLM's dashboards and gateways read.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "sched/request.h"
#include "server/edge_metrics.h"
#include "server/engine_metrics.h"
#include "server/gateway_metrics.h"

namespace headrace {

// Of one finished or given-up request, in seconds and tokens. Negative times: never came so far.
struct RequestTimes {
  double first_token = -1;  // from arrival
  double total = 0;         // from arrival
  double queue = 0;         // from arrival to the first step
  double prompt = 0;        // from the first step to the first token
  double answer = 0;        // from there to the end
  int64_t prompt_tokens = 0;
  int64_t prompt_tokens_computed = 0;  // the others were in the prefix cache
  int64_t generation_tokens = 0;
  int64_t longest_answer = 0;    // tokens of the choice with the most
  int64_t longest_sequence = 0;  // the same with its prompt
  int32_t choices = 1;
  int32_t max_tokens = 0;
};

// Any thread.
class ServerMetrics {
 public:
  explicit ServerMetrics(const std::string& model_name);
  ~ServerMetrics();

  void on_prompt_tokens(int64_t count, int64_t cached);  // of them, not computed
  void on_generation_tokens(int64_t count);
  void on_queue_left(double seconds);  // from arrival
  void on_first_token(double seconds);
  void on_inter_token(double seconds);
  void on_choice_finished(FinishReason reason);
  // A choice has ended out of which calls of tools were read. `request_type`: vLLM's word for its
  // protocol, chat_completions, responses or other. `called`: there was one.
  void on_calls_read(std::string_view request_type, bool streamed, bool called);
  void on_refused(int http_status);  // a request that no step has computed anything of
  void on_request_finished(const RequestTimes& times);

  // A model is loaded, with blocks of keys and values of so many tokens; 0: it keeps none.
  void on_loaded(int32_t block_tokens) { block_tokens_ = block_tokens; }
  // The engine goes, with these last numbers; the next one begins at 0, and sums go on.
  void on_unloaded(const EngineStats& last);

  // What expose() says of a model. `stats` is asked while nobody else exposes the model, so that
  // what is added is never of an earlier time than what was. None: it has no engine now.
  struct Exposed {
    std::shared_ptr<ServerMetrics> metrics;  // keeps the engine too, which would end with more
    std::function<EngineStats()> stats;
    EdgeStats edge;
    OpenAdapters adapters;
  };
  // Prometheus text format 0.0.4: each name once, with a line for each model.
  static std::string expose(const std::vector<Exposed>& models);

 private:
  struct Series;
  struct LlamaSeries;
  struct SglangSeries;
  void set_engine(const EngineStats& stats, bool awake);
  std::atomic<int32_t> block_tokens_{0};
  std::unique_ptr<Series> series_;
  std::unique_ptr<LlamaSeries> llama_;
  std::unique_ptr<SglangSeries> sglang_;
};

}  // namespace headrace
