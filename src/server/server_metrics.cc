#include "server/server_metrics.h"

#include <array>
#include <chrono>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "server/metric_aliases.h"

namespace headrace {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                             1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kPerToken = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                           .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const Buckets kLatency = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                          30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
// 1, 2, 5 times powers of ten, as far as a context may go.
const Buckets kTokens = {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                         2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
const Buckets kChoices = {1, 2, 5, 10, 20};

// Sums that the scheduler keeps.
struct SchedulerSum {
  const char* name;
  const char* help;
  double (*value)(const SchedulerStats& stats);
};
constexpr std::array<SchedulerSum, 22> kSchedulerSums = {{
    {"vllm:num_preemptions_total", "Preemptions.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.preemptions); }},
    {"vllm:spec_decode_num_drafts_total", "Verifications of a sequence's proposals.",
     [](const SchedulerStats& stats) {
       return static_cast<double>(stats.proposals.verifications);
     }},
    {"headrace:draft_seconds_total", "Seconds of the steps that the draft model took.",
     [](const SchedulerStats& stats) { return stats.proposals.draft_seconds; }},
    {"vllm:spec_decode_num_draft_tokens_total", "Tokens that were proposed and verified.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.proposals.proposed); }},
    {"vllm:spec_decode_num_accepted_tokens_total", "Proposed tokens that were right.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.proposals.accepted); }},
    {"vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.prefix_cache_queries); }},
    {"vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.prefix_cache_hits); }},
    {"headrace:kv_pages_stored_total", "Pages of keys and values that went to a lower tier.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.pages_moved.stored); }},
    {"headrace:kv_pages_stored_ahead_total", "Of them, those that no step waited for.",
     [](const SchedulerStats& stats) {
       return static_cast<double>(stats.pages_moved.stored_ahead);
     }},
    {"headrace:kv_pages_loaded_total", "Pages that came back from a lower tier.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.pages_moved.loaded); }},
    {"headrace:kv_pages_loaded_ahead_total", "Of them, those that came before their turn.",
     [](const SchedulerStats& stats) {
       return static_cast<double>(stats.pages_moved.loaded_ahead);
     }},
    {"headrace:recomputed_tokens_total", "Tokens computed again after a preemption.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.recomputed_tokens); }},
    {"headrace:dropped_tokens_total", "Tokens sampled for answers that had already ended.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.dropped_tokens); }},
    {"headrace:ended_row_tokens_total", "Tokens computed for ended rows of static batches.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.ended_row_tokens); }},
    {"headrace:idle_row_steps_total", "Steps in which an ended row held a slot (static batches).",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.idle_row_steps); }},
    {"headrace:resumed_tokens_total",
     "Tokens of preempted sequences that were found instead of computed again.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.resumed_tokens); }},
    {"headrace:background_tokens_total", "Tokens computed for background requests.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.background_tokens); }},
    {"headrace:background_room_seconds_total",
     "What live work left of its steps under --background-step while background work waited.",
     [](const SchedulerStats& stats) { return stats.background_room_seconds; }},
    {"headrace:background_used_seconds_total", "What background work took of that room.",
     [](const SchedulerStats& stats) { return stats.background_used_seconds; }},
    {"headrace:beside_steps_total", "Steps with background work beside decodes of live requests.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.beside_steps); }},
    {"headrace:beside_steps_over_total", "Of them, those longer than --background-step.",
     [](const SchedulerStats& stats) { return static_cast<double>(stats.beside_steps_over); }},
    {"headrace:beside_step_seconds_total", "What those steps took.",
     [](const SchedulerStats& stats) { return stats.beside_seconds; }},
}};

}  // namespace

namespace {

prometheus::Labels with_more(prometheus::Labels labels,
                             std::initializer_list<prometheus::Labels::value_type> more) {
  labels.insert(more);
  return labels;
}

prometheus::Counter& prompt_tokens_from(prometheus::Registry& registry,
                                        const prometheus::Labels& labels, const char* source) {
  return prometheus::BuildCounter()
      .Name("vllm:prompt_tokens_by_source_total")
      .Help("Prompt tokens by where their keys and values came from.")
      .Register(registry)
      .Add(with_more(labels, {{"source", source}}));
}

// What the scheduler counts, since the last exposition.
class SchedulerSeries {
 public:
  SchedulerSeries(prometheus::Registry& registry, const prometheus::Labels& labels)
      : labels_(labels),
        accepted_at_(
            prometheus::BuildCounter()
                .Name("vllm:spec_decode_num_accepted_tokens_per_pos_total")
                .Help("Verifications whose token at this position (0: the first) was right.")
                .Register(registry)),
        beside_max_(
            prometheus::BuildGauge()
                .Name("headrace:beside_step_seconds_max")
                .Help("The longest step with background work beside decodes of live requests.")
                .Register(registry)
                .Add(labels)) {
    for (const SchedulerSum& sum : kSchedulerSums) {
      sums_.push_back(
          &prometheus::BuildCounter().Name(sum.name).Help(sum.help).Register(registry).Add(labels));
    }
    accepted_at_.Add(with_more(labels_, {{"position", "0"}}));
  }

  void add(const SchedulerStats& now, const SchedulerStats& seen) {
    for (size_t i = 0; i < kSchedulerSums.size(); ++i) {
      sums_[i]->Increment(kSchedulerSums[i].value(now) - kSchedulerSums[i].value(seen));
    }
    beside_max_.Set(now.beside_seconds_max);
    // A position but the first is there from the first time that a token was right so far behind.
    for (size_t i = 0; i < now.proposals.accepted_at.size(); ++i) {
      const uint64_t more = now.proposals.accepted_at[i] - seen.proposals.accepted_at[i];
      if (more == 0) continue;
      accepted_at_.Add(with_more(labels_, {{"position", std::to_string(i)}}))
          .Increment(static_cast<double>(more));
    }
  }

 private:
  const prometheus::Labels labels_;
  std::vector<prometheus::Counter*> sums_;  // in the order of kSchedulerSums
  prometheus::Family<prometheus::Counter>& accepted_at_;
  prometheus::Gauge& beside_max_;
};

// Answers out of which calls of tools are read, by choice.
class CallReadSeries {
 public:
  CallReadSeries(prometheus::Registry& registry, prometheus::Labels labels)
      : labels_(std::move(labels)),
        family_(prometheus::BuildCounter()
                    .Name("vllm:tool_call_parser_invocations_total")
                    .Help("Choices that calls of tools were read out of, once each, and whether "
                          "there was one.")
                    .Register(registry)) {
    for (const char* type : {"chat_completions", "responses", "other"}) {
      for (const bool streamed : {true, false}) {
        for (const bool called : {true, false}) of(type, streamed, called);
      }
    }
  }

  prometheus::Counter& of(std::string_view request_type, bool streamed, bool called) {
    return family_.Add(with_more(labels_, {{"mode", streamed ? "streaming" : "non_streaming"},
                                           {"outcome", called ? "tool_call" : "no_tool_call"},
                                           {"request_type", std::string(request_type)}}));
  }

 private:
  const prometheus::Labels labels_;
  prometheus::Family<prometheus::Counter>& family_;
};

// Of keys and values.
class CacheGauges {
 public:
  CacheGauges(prometheus::Registry& registry, const prometheus::Labels& labels)
      : labels_(labels),
        usage_(gauge(registry, "vllm:kv_cache_usage_perc", "KV blocks in use, 0 to 1.")),
        in_host_(
            gauge(registry, "headrace:kv_pages_in_host_memory", "Pages in the host memory tier.")),
        on_disk_(gauge(registry, "headrace:kv_pages_on_disk", "Pages in the disk tier.")),
        slots_(prometheus::BuildGauge()
                   .Name("headrace:kv_slots")
                   .Help("Token slots of the KV pool by what they hold, in one step of 64.")
                   .Register(registry)),
        configs_(prometheus::BuildGauge()
                     .Name("vllm:cache_config_info")
                     .Help("The cache of keys and values.")
                     .Register(registry)) {}

  void set(const SchedulerStats& stats, const KvWaste& slots, int32_t block_tokens) {
    for (const KvWastePart& part : kKvWasteParts) {
      slots_.Add(with_more(labels_, {{"use", part.name}}))
          .Set(static_cast<double>(slots.*part.slots));
    }
    const bool there = stats.blocks_total > 0;
    usage_.Set(there ? static_cast<double>(stats.blocks_used) / stats.blocks_total : 0);
    in_host_.Set(stats.pages_in_host);
    on_disk_.Set(stats.pages_on_disk);
    // Its numbers are labels: another cache is another series.
    if (config_ != nullptr) configs_.Remove(config_);
    config_ = nullptr;
    if (!there) return;
    config_ =
        &configs_.Add(with_more(labels_, {{"block_size", std::to_string(block_tokens)},
                                          {"num_gpu_blocks", std::to_string(stats.blocks_total)}}));
    config_->Set(1);
  }

 private:
  prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels_);
  }

  const prometheus::Labels labels_;
  prometheus::Gauge& usage_;
  prometheus::Gauge& in_host_;
  prometheus::Gauge& on_disk_;
  prometheus::Family<prometheus::Gauge>& slots_;
  prometheus::Family<prometheus::Gauge>& configs_;
  prometheus::Gauge* config_ = nullptr;
};

}  // namespace

// Tokens a second between two looks at their sum that are a second apart at least.
class Throughput {
 public:
  double of(uint64_t tokens) {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - at_).count();
    if (tokens < tokens_) {  // another engine
      speed_ = 0;
    } else if (seconds < 1) {
      return speed_;
    } else {
      speed_ = static_cast<double>(tokens - tokens_) / seconds;
    }
    at_ = now;
    tokens_ = tokens;
    return speed_;
  }

 private:
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
  uint64_t tokens_ = 0;
  double speed_ = 0;
};

struct ServerMetrics::Series {
  explicit Series(const std::string& model_name)
      : labels{{"model_name", model_name}, {"engine", "0"}} {}

  prometheus::Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }
  prometheus::Counter& success(FinishReason reason) {
    prometheus::Labels with_reason = labels;
    with_reason.emplace("finished_reason", finish_reason_name(reason));
    return successes.Add(with_reason);
  }

  prometheus::Counter& refusal(int http_status) {
    prometheus::Labels with_status = labels;
    with_status.emplace("status", std::to_string(http_status));
    return prometheus::BuildCounter()
        .Name("headrace:refused_requests_total")
        .Help("Requests that the engine never began, by HTTP status: a full queue is 429.")
        .Register(registry)
        .Add(with_status);
  }

  prometheus::Registry registry;
  const prometheus::Labels labels;
  CacheGauges cache{registry, labels};

  prometheus::Gauge& running =
      gauge("vllm:num_requests_running", "Sequences in the running batch.");
  prometheus::Gauge& waiting = gauge("vllm:num_requests_waiting", "Requests in the queue.");
  prometheus::Counter& prompt_tokens =
      counter("vllm:prompt_tokens_total", "Prompt tokens of requests that got a first result.");
  prometheus::Counter& prompt_tokens_cached =
      counter("vllm:prompt_tokens_cached_total", "Of them, found in the prefix cache.");
  // The three that vLLM tells apart; the lower tiers count as the cache that they belong to.
  prometheus::Counter& prompt_tokens_computed =
      prompt_tokens_from(registry, labels, "local_compute");
  prometheus::Counter& prompt_tokens_found =
      prompt_tokens_from(registry, labels, "local_cache_hit");
  prometheus::Counter& corrupted =
      counter("vllm:corrupted_requests_total", "Choices that ended in logits that are no numbers.");
  prometheus::Counter& generation_tokens =
      counter("vllm:generation_tokens_total", "Generated tokens.");
  prometheus::Family<prometheus::Counter>& successes = prometheus::BuildCounter()
                                                           .Name("vllm:request_success_total")
                                                           .Help("Finished choices by reason.")
                                                           .Register(registry);
  prometheus::Histogram& first_token =
      histogram("vllm:time_to_first_token_seconds", "Arrival to first token.", kFirstToken);
  prometheus::Histogram& queue_time =
      histogram("vllm:request_queue_time_seconds", "Arrival to first step.", kLatency);
  prometheus::Histogram& inter_token =
      histogram("vllm:inter_token_latency_seconds", "Between results of a choice.", kPerToken);
  prometheus::Histogram& per_token =
      histogram("vllm:request_time_per_output_token_seconds",
                "Per request: time per token after the first.", kPerToken);
  prometheus::Histogram& latency =
      histogram("vllm:e2e_request_latency_seconds", "Arrival to last token.", kLatency);
  prometheus::Histogram& request_prompt =
      histogram("vllm:request_prompt_tokens", "Prompt tokens per request.", kTokens);
  prometheus::Histogram& request_generation =
      histogram("vllm:request_generation_tokens", "Generated tokens per request.", kTokens);
  prometheus::Histogram& longest_answer =
      histogram("vllm:request_max_num_generation_tokens",
                "Per request: tokens of the choice with the most.", kTokens);
  prometheus::Histogram& request_computed =
      histogram("vllm:request_prefill_kv_computed_tokens",
                "Per request: prompt tokens that were not in the prefix cache.", kTokens);
  prometheus::Histogram& prefill_time =
      histogram("vllm:request_prefill_time_seconds", "First step to first token.", kLatency);
  prometheus::Histogram& decode_time =
      histogram("vllm:request_decode_time_seconds", "First token to last token.", kLatency);
  prometheus::Histogram& inference_time =
      histogram("vllm:request_inference_time_seconds", "First step to last token.", kLatency);
  prometheus::Histogram& request_n = histogram("vllm:request_params_n", "n per request.", kChoices);
  prometheus::Histogram& request_max_tokens =
      histogram("vllm:request_params_max_tokens", "max_tokens per request.", kTokens);

  EdgeMetrics edge{registry, labels};

  GatewayMetrics gateway{registry, labels};

  EngineMetrics engine{registry, labels};
  SchedulerSeries scheduler{registry, labels};
  CallReadSeries calls_read{registry, labels};

  std::mutex expose_mutex;
  EngineStats seen;  // at the last exposition
};

// What dashboards of llama.cpp read. Sums are of requests that have ended.
struct ServerMetrics::LlamaSeries {
  explicit LlamaSeries(Series& own) : series(own) {}

  void on_request_finished(const RequestTimes& times) {
    prompt_tokens.Increment(static_cast<double>(times.prompt_tokens_computed));
    prompt_seconds.Increment(times.prompt);
    predicted_tokens.Increment(static_cast<double>(times.generation_tokens));
    predicted_seconds.Increment(times.answer);
    if (static_cast<double>(times.longest_sequence) > longest.Value()) {
      longest.Set(static_cast<double>(times.longest_sequence));
    }
  }
  void set(const EngineStats& stats) {
    const auto speed = [](const prometheus::Counter& tokens, const prometheus::Counter& seconds) {
      return seconds.Value() > 0 ? tokens.Value() / seconds.Value() : 0;
    };
    prompt_speed.Set(speed(prompt_tokens, prompt_seconds));
    predicted_speed.Set(speed(predicted_tokens, predicted_seconds));
    processing.Set(stats.scheduler.running);
    deferred.Set(stats.scheduler.waiting);
    decodes.Increment(static_cast<double>(stats.steps - series.seen.steps));
    sequences += static_cast<double>(stats.step_sequences_total - series.seen.step_sequences_total);
    if (decodes.Value() > 0) busy_slots.Set(sequences / decodes.Value());
  }

  Series& series;
  prometheus::Counter& prompt_tokens =
      series.counter("llamacpp:prompt_tokens_total", "Prompt tokens that were computed.");
  prometheus::Counter& prompt_seconds =
      series.counter("llamacpp:prompt_seconds_total", "From first steps to first tokens.");
  prometheus::Counter& predicted_tokens =
      series.counter("llamacpp:tokens_predicted_total", "Generated tokens.");
  prometheus::Counter& predicted_seconds = series.counter(
      "llamacpp:tokens_predicted_seconds_total", "From first tokens to the ends of answers.");
  prometheus::Gauge& prompt_speed =
      series.gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens a second, of a request.");
  prometheus::Gauge& predicted_speed =
      series.gauge("llamacpp:predicted_tokens_seconds", "Generated tokens a second, of a request.");
  prometheus::Gauge& processing =
      series.gauge("llamacpp:requests_processing", "Sequences in the running batch.");
  prometheus::Gauge& deferred =
      series.gauge("llamacpp:requests_deferred", "Requests in the queue.");
  prometheus::Counter& decodes = series.counter("llamacpp:n_decode_total", "Steps of the engine.");
  prometheus::Gauge& longest = series.gauge(
      "llamacpp:n_tokens_max", "Tokens of the longest prompt with its answer that has ended.");
  prometheus::Gauge& busy_slots =
      series.gauge("llamacpp:n_busy_slots_per_decode", "Sequences in a step, on average.");
  double sequences = 0;  // of all steps
};

// What SGLang's dashboards show and vLLM's do not.
struct ServerMetrics::SglangSeries {
  explicit SglangSeries(Series& own) : series(own) {}

  void set(const SchedulerStats& stats) {
    const auto ratio = [](uint64_t part, uint64_t whole) {
      return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
    };
    const ProposalStats& proposals = stats.proposals;
    hit_rate.Set(ratio(stats.prefix_cache_hits, stats.prefix_cache_queries));
    accept_rate.Set(ratio(proposals.accepted, proposals.proposed));
    // The token that the model itself adds to those that were right counts.
    accept_length.Set(ratio(proposals.accepted + proposals.verifications, proposals.verifications));
    speed.Set(throughput.of(stats.generation_tokens));
  }

  Series& series;
  Throughput throughput;
  prometheus::Counter& requests =
      series.counter("sglang:num_requests_total", "Requests that have ended.");
  prometheus::Gauge& hit_rate = series.gauge(
      "sglang:cache_hit_rate", "Tokens found in the prefix cache, of those looked up.");
  prometheus::Gauge& accept_rate =
      series.gauge("sglang:spec_accept_rate", "Proposed tokens that were right, of all.");
  prometheus::Gauge& accept_length =
      series.gauge("sglang:spec_accept_length", "Tokens that a verification gave, on average.");
  prometheus::Gauge& speed = series.gauge(
      "sglang:gen_throughput",
      "Generated tokens a second, between expositions that are a second apart at least.");
};

ServerMetrics::ServerMetrics(const std::string& model_name)
    : series_(std::make_unique<Series>(model_name)),
      llama_(std::make_unique<LlamaSeries>(*series_)),
      sglang_(std::make_unique<SglangSeries>(*series_)) {
  for (FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort,
                              FinishReason::kFault, FinishReason::kRepetition}) {
    series_->success(reason);  // present with 0 from the start
  }
  for (const int http_status : {400, 429, 503}) series_->refusal(http_status);
  prompt_tokens_from(series_->registry, series_->labels,
                     "external_kv_transfer");  // of other machines: none
  series_->counter("vllm:external_prefix_cache_queries_total",
                   "Tokens looked up in caches of other machines: there are none.");
  series_->counter("vllm:external_prefix_cache_hits_total",
                   "Tokens found in caches of other machines: there are none.");
  series_->counter("vllm:mm_cache_queries_total", "Looks for pictures: models see none here.");
  series_->counter("vllm:mm_cache_hits_total", "Pictures that were found: models see none here.");
}

ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::on_prompt_tokens(int64_t count, int64_t cached) {
  series_->prompt_tokens.Increment(static_cast<double>(count));
  series_->prompt_tokens_cached.Increment(static_cast<double>(cached));
  series_->prompt_tokens_computed.Increment(static_cast<double>(count - cached));
  series_->prompt_tokens_found.Increment(static_cast<double>(cached));
}

void ServerMetrics::on_generation_tokens(int64_t count) {
  series_->generation_tokens.Increment(static_cast<double>(count));
}

void ServerMetrics::on_queue_left(double seconds) { series_->queue_time.Observe(seconds); }

void ServerMetrics::on_first_token(double seconds) { series_->first_token.Observe(seconds); }

void ServerMetrics::on_inter_token(double seconds) { series_->inter_token.Observe(seconds); }

void ServerMetrics::on_choice_finished(FinishReason reason) {
  series_->success(reason).Increment();
  if (reason == FinishReason::kFault) series_->corrupted.Increment();
}

void ServerMetrics::on_calls_read(std::string_view request_type, bool streamed, bool called) {
  series_->calls_read.of(request_type, streamed, called).Increment();
}

void ServerMetrics::on_refused(int http_status) { series_->refusal(http_status).Increment(); }

void ServerMetrics::on_request_finished(const RequestTimes& times) {
  llama_->on_request_finished(times);
  sglang_->requests.Increment();
  series_->latency.Observe(times.total);
  series_->request_prompt.Observe(static_cast<double>(times.prompt_tokens));
  series_->request_generation.Observe(static_cast<double>(times.generation_tokens));
  series_->longest_answer.Observe(static_cast<double>(times.longest_answer));
  series_->request_computed.Observe(static_cast<double>(times.prompt_tokens_computed));
  series_->prefill_time.Observe(times.prompt);
  series_->decode_time.Observe(times.answer);
  series_->inference_time.Observe(times.prompt + times.answer);
  series_->request_n.Observe(times.choices);
  series_->request_max_tokens.Observe(times.max_tokens);
  if (times.first_token >= 0 && times.generation_tokens > times.choices) {
    const auto later_tokens = static_cast<double>(times.generation_tokens - times.choices);
    series_->per_token.Observe((times.total - times.first_token) * times.choices / later_tokens);
  }
}

void ServerMetrics::set_engine(const EngineStats& stats, bool awake) {
  Series& series = *series_;
  const SchedulerStats& scheduler = stats.scheduler;
  const SchedulerStats& seen = series.seen.scheduler;
  series.running.Set(scheduler.running);
  series.waiting.Set(scheduler.waiting);
  series.cache.set(scheduler, stats.kv_slots, block_tokens_);
  series.engine.add(stats, series.seen);
  series.scheduler.add(scheduler, seen);
  series.gateway.set(scheduler, awake);
  sglang_->set(scheduler);
  llama_->set(stats);  // since what was seen
  series.seen = stats;
}

void ServerMetrics::on_unloaded(const EngineStats& last) {
  const std::lock_guard lock(series_->expose_mutex);
  set_engine(last, true);
  series_->seen = {};
  set_engine({}, false);  // gauges
}

std::string ServerMetrics::expose(const std::vector<Exposed>& models) {
  std::vector<prometheus::MetricFamily> families;
  std::unordered_map<std::string, size_t> places;
  for (const Exposed& model : models) {
    Series& series = *model.metrics->series_;
    const std::lock_guard lock(series.expose_mutex);
    series.edge.set(model.edge);
    series.gateway.set(model.adapters);
    if (model.stats) model.metrics->set_engine(model.stats(), true);
    for (prometheus::MetricFamily& family : series.registry.Collect()) {
      const auto [at, fresh] = places.emplace(family.name, families.size());
      if (fresh) {
        families.push_back(std::move(family));
        continue;
      }
      auto& metrics = families[at->second].metric;
      std::move(family.metric.begin(), family.metric.end(), std::back_inserter(metrics));
    }
  }
  add_metric_aliases(families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace headrace
