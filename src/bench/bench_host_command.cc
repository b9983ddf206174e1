#include "bench/bench_host_command.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/rng.h"
#include "bench/workload.h"
#include "cli/command_line.h"
#include "cli/version.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "kv/kv_group.h"
#include "models/null_model.h"
#include "sched/queue_policy.h"

namespace headrace {
namespace {

constexpr const char* kBenchHostFooter = R"(Examples:
  headrace bench host --streams 1,8,64,256
  headrace bench host --streams 256 --step-us 10000 --sweep-mib 64   (steps of 10 ms, caches lost)

Engine, scheduler, slots, batch and sinks run as they do beside a GPU; the device answers at once
and draws tokens of their random bits. Left out is what only CUDA can say: launching (upload and
launch below are copies of memory and the drawing itself). Steps that only decode, from the last
stream's first token to the first stream's last; medians over the repetitions.)";

constexpr int32_t kBlockTokens = 16;

struct HostFlags {
  std::vector<int64_t> streams{1, 8, 64, 256};
  int32_t input = 128, output = 256;
  int32_t batched_tokens = 8192;
  int32_t window = 0, full_every = 2;
  int32_t repetitions = 5;
  int32_t step_us = 0;
  int32_t sweep_mib = 0;
  std::string policy = "fcfs";
  bool overlap = true, prefix_caching = true;
  std::string format = "text";
};

// An 8B model's sizes; with a window most layers slide, as Gemma's do.
ModelSpec spec_of(const HostFlags& flags) {
  ModelSpec spec{.architecture = "null",
                 .vocab_size = 128256,
                 .hidden_size = 4096,
                 .layer_count = 32,
                 .query_heads = 32,
                 .context_length = 1 << 17,
                 .kv = {}};
  for (int32_t layer = 0; layer < spec.layer_count; ++layer) {
    const int32_t window = layer % flags.full_every == 0 ? 0 : flags.window;
    spec.kv.push_back({.kv_heads = 8, .k_dim = 128, .v_dim = 128, .window = window});
  }
  return spec;
}

// What the sinks of one run count, and the engine's totals between its first step that only decodes
// and its last. Sinks run on the engine thread.
class DecodeWindow {
 public:
  DecodeWindow(const Engine& engine, int64_t streams) : engine_(engine), streams_(streams) {}

  EmissionSink sink() {
    return [this, first = true](const Emission& emission) mutable {
      if (emission.tokens.empty()) return;
      if (std::exchange(first, false) && ++started_ == streams_) begin_ = engine_.stats();
      if (emission.finish != FinishReason::kNone) finish_one();
    };
  }

  struct Totals {
    HostSeconds host;
    double steps = 0;
  };
  Totals wait() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [&] { return finished_ == streams_; });
    return {end_.host - begin_.host, static_cast<double>(end_.steps - begin_.steps)};
  }

 private:
  void finish_one() {
    if (finished_ == 0) end_ = engine_.stats();
    const std::lock_guard lock(mutex_);
    if (++finished_ == streams_) all_done_.notify_one();
  }

  const Engine& engine_;
  const int64_t streams_;
  int64_t started_ = 0;
  EngineStats begin_, end_;
  std::mutex mutex_;
  std::condition_variable all_done_;
  int64_t finished_ = 0;
};

// An engine on the null device, for one number of streams.
class HostRun {
 public:
  HostRun(const HostFlags& flags, int64_t streams)
      : flags_(flags),
        streams_(streams),
        device_(create_null_device(
            {.call_seconds = flags.step_us * 1e-6, .sweep_bytes = int64_t{flags.sweep_mib} << 20})),
        model_(spec_of(flags)) {}

  Status start() {
    KvPlan kv = plan_kv(model_.spec(), {KvFormat::kBF16}, kBlockTokens);
    const int32_t length = flags_.input + flags_.output;
    const auto pages = pages_for(int64_t{length}, kBlockTokens) * streams_ *
                       static_cast<int64_t>(kv.groups.size());
    SchedulerOptions scheduler{.max_num_seqs = static_cast<int32_t>(streams_),
                               .max_num_batched_tokens = flags_.batched_tokens,
                               .max_model_len = length,
                               .max_queued_requests = static_cast<int32_t>(streams_),
                               .steps_in_flight_max = flags_.overlap ? kDeviceStepsInFlight : 1,
                               .policy = flags_.policy,
                               .groups = kv.groups,
                               .block_count = static_cast<int32_t>(2 * pages),
                               .enable_prefix_caching = flags_.prefix_caching};
    const ModelRunnerOptions runner{.max_num_seqs = scheduler.max_num_seqs,
                                    .max_num_batched_tokens = scheduler.max_num_batched_tokens,
                                    .max_model_len = length,
                                    .block_count = scheduler.block_count,
                                    .graphs_at_start = true};
    HR_ASSIGN_OR_RETURN(auto made, create_model_runner(*device_, model_, std::move(kv), runner));
    HR_ASSIGN_OR_RETURN(engine_, Engine::create({.scheduler = std::move(scheduler),
                                                 .vocab_size = model_.spec().vocab_size},
                                                std::move(made)));
    return ok_status();
  }

  // Microseconds a step, by phase.
  Result<std::vector<double>> run(uint64_t seed) {
    DecodeWindow window(*engine_, streams_);
    Rng rng(seed);
    for (int64_t i = 0; i < streams_; ++i) {
      HR_RETURN_IF_ERROR(engine_->submit(random_request(rng), window.sink()));
    }
    const DecodeWindow::Totals totals = window.wait();
    std::vector<double> micros;
    for (size_t phase = 0; phase < kHostPhaseCount; ++phase) {
      micros.push_back(totals.host[static_cast<HostPhase>(phase)] * 1e6 / totals.steps);
    }
    return micros;
  }

 private:
  Request random_request(Rng& rng) {
    Request request{.id = engine_->next_request_id()};
    const auto vocabulary = static_cast<uint64_t>(model_.spec().vocab_size);
    for (int32_t i = 0; i < flags_.input; ++i) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(vocabulary)));
    }
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = flags_.output;
    return request;
  }

  const HostFlags& flags_;
  const int64_t streams_;
  const std::unique_ptr<Device> device_;
  const NullModel model_;
  std::unique_ptr<Engine> engine_;
};

void print_row(const HostFlags& flags, int64_t streams, const std::vector<double>& phases,
               const std::vector<double>& totals) {
  const double total = percentile(totals, 0.5);
  if (flags.format == "json") {
    Json row = Json::object();
    row.set("bench", "host").set("commit", build_commit()).set("streams", streams);
    row.set("prompt", flags.input).set("output", flags.output).set("policy", flags.policy);
    row.set("window", flags.window)
        .set("full_every", flags.full_every)
        .set("overlap", flags.overlap);
    row.set("step_us", flags.step_us).set("sweep_mib", flags.sweep_mib);
    row.set("host_us_per_step", total).set("min", percentile(totals, 0));
    row.set("max", percentile(totals, 1));
    for (size_t i = 0; i < kHostPhaseCount; ++i) row.set(kHostPhaseNames[i], phases[i]);
    fmt::print("{}\n", write_json(row));
  } else {
    fmt::print("{:>7} {:>8.2f} {:>8.1f}", streams, total, 1e3 * total / streams);
    for (const double phase : phases) fmt::print(" {:>8.2f}", phase);
    fmt::print("\n");
  }
  std::fflush(stdout);
}

Status measure(const HostFlags& flags, int64_t streams) {
  HostRun host(flags, streams);
  HR_RETURN_IF_ERROR(host.start());
  std::vector<std::vector<double>> by_phase(kHostPhaseCount);
  std::vector<double> totals;
  for (int32_t i = 0; i <= flags.repetitions; ++i) {
    HR_ASSIGN_OR_RETURN(const std::vector<double> phases, host.run(static_cast<uint64_t>(i) + 1));
    if (i == 0) continue;  // the first touches memory
    double total = 0;
    for (size_t phase = 0; phase < kHostPhaseCount; ++phase) {
      by_phase[phase].push_back(phases[phase]);
      total += phases[phase];
    }
    totals.push_back(total);
  }
  std::vector<double> medians;
  for (const std::vector<double>& phase : by_phase) medians.push_back(percentile(phase, 0.5));
  print_row(flags, streams, medians, totals);
  return ok_status();
}

Result<int> run_host(const HostFlags& flags) {
  if (flags.format == "text") {
    fmt::print("streams  us/step ns/strm.");
    for (const std::string_view name : kHostPhaseNames) fmt::print(" {:>8}", name);
    fmt::print("\n");
  }
  for (const int64_t streams : flags.streams) HR_RETURN_IF_ERROR(measure(flags, streams));
  return 0;
}

}  // namespace

SubcommandRun define_bench_host(CLI::App& app) {
  auto flags = std::make_shared<HostFlags>();
  const auto count = [&](const std::string& names, int32_t& value, int32_t low, int32_t high,
                         const std::string& description) {
    app.add_option(names, value, description)
        ->check(CLI::Range(low, high))
        ->type_name("N")
        ->group("Work");
  };
  app.add_option_function<std::string>(
         "--streams",
         [flags = flags.get()](const std::string& text) {
           const auto list = parse_size_list(text);
           if (!list.ok()) throw CLI::ValidationError(list.status().message());
           for (const int64_t value : *list) {
             if (value < 1 || value > 4096) {
               throw CLI::ValidationError(fmt::format("{} is not within 1 and 4096", value));
             }
           }
           flags->streams = *list;
         },
         "Sequences that decode together (default 1,8,64,256)")
      ->type_name("N,...")
      ->group("Work");
  count("--input-len", flags->input, 1, 1 << 16, "Tokens of a prompt");
  count("--output-len", flags->output, 4, 1 << 16, "Tokens of an answer");
  count("--max-num-batched-tokens", flags->batched_tokens, 4096, 1 << 16, "Most tokens of a step");
  count("--window", flags->window, 0, 1 << 16,
        "Layers see so many tokens: more KV groups (0: none does)");
  count("--full-every", flags->full_every, 2, 32, "With --window: one layer in so many sees all");
  count("-r,--repetitions", flags->repetitions, 1, 1000, "Timed runs of each");
  count("--step-us", flags->step_us, 0, 1000000, "The device takes so long for a step");
  count("--sweep-mib", flags->sweep_mib, 0, 1024,
        "Memory that is read in each step's wait, so that caches lose what they held");
  add_choice(app, "--scheduling-policy", flags->policy, queue_policy_names(), "Who runs next")
      ->group("Work");
  app.add_flag("--overlap,!--no-overlap", flags->overlap, "A step is planned while one runs")
      ->group("Work");
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", flags->prefix_caching,
               "Keep prefixes")
      ->group("Work");
  add_choice(app, "-o,--output", flags->format, {"text", "json"}, "Output format")->group("Work");
  app.footer(kBenchHostFooter);
  return [flags] { return run_host(*flags); };
}

}  // namespace headrace
