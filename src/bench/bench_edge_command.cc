#include "bench/bench_edge_command.h"

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "bench/edge_bench.h"
#include "bench/workload.h"
#include "cli/command_line.h"
#include "cli/version.h"

namespace headrace {
namespace {

constexpr const char* kBenchEdgeFooter = R"(Examples:
  headrace bench edge                                    (all three, without and with TLS)
  headrace bench edge --measure latency -r 5 -o json
  headrace bench edge --measure throughput --streams 256 --steps-per-second 600 --tls off

The server runs as it is, with its routes, texts and event streams; the engine behind it computes
nothing and gives a token to each stream in every step. The client is a process of its own on the
same machine, one thread that counts events. Medians over the repetitions:
  throughput  256 streams, steps as fast as the client takes them (4 steps ahead of it at most)
  latency     64 streams, 50 steps a second: from the step to the client's read of each token
  burst       4,000 open streams, 2 steps a second: until all have their token; memory of each
Memory is the server's process alone. CPU times say what each side took; the engine's thread, which
plays the model, stands apart.)";

struct EdgeMeasure {
  std::string_view name;
  int32_t streams, steps;
  double steps_per_second;
};
constexpr std::array<EdgeMeasure, 3> kEdgeMeasures = {{
    {"throughput", 256, 2000, 0},
    {"latency", 64, 250, 50},
    {"burst", 4000, 12, 2},
}};

struct EdgeFlags {
  std::string measure = "all", tls = "both", route = "chat", model, format = "text";
  int32_t streams = 0, steps = 0;  // 0: the measure's own
  double steps_per_second = -1;    // likewise below 0
  int32_t http_threads = 2, repetitions = 3;
};

// What is said of a run, and where in its result that stands.
struct EdgeColumn {
  std::string_view name;
  double EdgeResult::*value;
};
constexpr std::array<EdgeColumn, 12> kEdgeColumns = {{
    {"seconds", &EdgeResult::seconds},
    {"tokens_per_second", &EdgeResult::tokens_per_second},
    {"delay_ms_p50", &EdgeResult::delay_ms_p50},
    {"delay_ms_p99", &EdgeResult::delay_ms_p99},
    {"delay_ms_max", &EdgeResult::delay_ms_max},
    {"burst_ms_min", &EdgeResult::burst_ms_min},
    {"burst_ms_p50", &EdgeResult::burst_ms_p50},
    {"burst_ms_max", &EdgeResult::burst_ms_max},
    {"server_cpu_seconds", &EdgeResult::server_cpu_seconds},
    {"engine_cpu_seconds", &EdgeResult::engine_cpu_seconds},
    {"client_cpu_seconds", &EdgeResult::client_cpu_seconds},
    {"resident_kib_per_stream", &EdgeResult::resident_kib_per_stream},
}};

EdgeLoad load_of(const EdgeFlags& flags, const EdgeMeasure& measure, bool tls) {
  return {.route = flags.route == "chat" ? EdgeRoute::kChat : EdgeRoute::kCompletions,
          .streams = flags.streams > 0 ? flags.streams : measure.streams,
          .steps = flags.steps > 0 ? flags.steps : measure.steps,
          .steps_per_second =
              flags.steps_per_second >= 0 ? flags.steps_per_second : measure.steps_per_second,
          .tls = tls,
          .http_threads = flags.http_threads};
}

std::vector<double> samples_of(const std::vector<EdgeResult>& results, const EdgeColumn& column) {
  std::vector<double> samples;
  for (const EdgeResult& result : results) samples.push_back(result.*column.value);
  return samples;
}

void print_json(const EdgeFlags& flags, const EdgeMeasure& measure, const EdgeLoad& load,
                const std::string& vocabulary, const std::vector<EdgeResult>& results) {
  Json row = Json::object();
  row.set("bench", "edge").set("commit", build_commit()).set("measure", measure.name);
  row.set("route", flags.route).set("vocabulary", vocabulary).set("tls", load.tls);
  row.set("streams", load.streams).set("steps", load.steps);
  row.set("steps_per_second", load.steps_per_second).set("http_threads", load.http_threads);
  row.set("n", static_cast<int64_t>(results.size()));
  Json all = Json::object();
  for (const EdgeColumn& column : kEdgeColumns) {
    const std::vector<double> samples = samples_of(results, column);
    row.set(column.name, percentile(samples, 0.5));
    Json::Array values(samples.begin(), samples.end());
    all.set(column.name, std::move(values));
  }
  fmt::print("{}\n", write_json(row.set("samples", std::move(all))));
}

void print_text(const EdgeMeasure& measure, const EdgeLoad& load,
                const std::vector<EdgeResult>& results) {
  fmt::print("{:<10} {:<5} {:>5} streams", measure.name, load.tls ? "https" : "http", load.streams);
  for (const EdgeColumn& column : kEdgeColumns) {
    fmt::print("  {} {:.{}f}", column.name, percentile(samples_of(results, column), 0.5),
               column.value == &EdgeResult::tokens_per_second ? 0 : 3);
  }
  fmt::print("\n");
}

Status measure_load(const EdgeFlags& flags, const EdgeMeasure& measure, const EdgeModel& model,
                    bool tls) {
  const EdgeLoad load = load_of(flags, measure, tls);
  std::vector<EdgeResult> results;
  for (int32_t i = 0; i < flags.repetitions; ++i) {
    HR_ASSIGN_OR_RETURN(const EdgeResult result, measure_edge(model, load));
    results.push_back(result);
  }
  if (flags.format == "json") {
    print_json(flags, measure, load, model.name, results);
  } else {
    print_text(measure, load, results);
  }
  std::fflush(stdout);
  return ok_status();
}

Result<int> run_edge(const EdgeFlags& flags) {
  HR_ASSIGN_OR_RETURN(const EdgeModel model,
                      flags.model.empty() ? make_edge_model() : read_edge_model(flags.model));
  for (const EdgeMeasure& measure : kEdgeMeasures) {
    if (flags.measure != "all" && flags.measure != measure.name) continue;
    if (flags.tls != "on") HR_RETURN_IF_ERROR(measure_load(flags, measure, model, false));
    if (flags.tls != "off") HR_RETURN_IF_ERROR(measure_load(flags, measure, model, true));
  }
  return 0;
}

}  // namespace

SubcommandRun define_bench_edge(CLI::App& app) {
  auto flags = std::make_shared<EdgeFlags>();
  const auto count = [&](const std::string& names, int32_t& value, int32_t low, int32_t high,
                         const std::string& description) {
    app.add_option(names, value, description)
        ->check(CLI::Range(low, high))
        ->type_name("N")
        ->group("Work");
  };
  add_choice(app, "--measure", flags->measure, {"all", "throughput", "latency", "burst"},
             "What is measured")
      ->group("Work");
  add_choice(app, "--tls", flags->tls, {"both", "off", "on"},
             "HTTPS, with a certificate that is made for it")
      ->group("Work");
  add_choice(app, "--route", flags->route, {"chat", "completions"}, "The route that streams")
      ->group("Work");
  app.add_option("-m,--model", flags->model,
                 "A model whose tokenizer and chat template are served (default: made-up words)")
      ->type_name("PATH")
      ->group("Work");
  count("--streams", flags->streams, 1, kEdgeStreamsMax, "Streams at a time (default: as below)");
  count("--steps", flags->steps, 1, 1 << 20, "Tokens of each stream (default: so many seconds)");
  app.add_option("--steps-per-second", flags->steps_per_second,
                 "Pace of the engine; 0: as fast as the client takes them")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("R")
      ->group("Work");
  count("--http-threads", flags->http_threads, 1, 64, "Threads of the server");
  count("-r,--repetitions", flags->repetitions, 1, 1000, "Runs of each");
  add_choice(app, "-o,--output", flags->format, {"text", "json"}, "Output format")->group("Work");
  app.footer(kBenchEdgeFooter);
  return [flags] { return run_edge(*flags); };
}

}  // namespace headrace
