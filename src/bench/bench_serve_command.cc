#include "bench/bench_serve_command.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/json.h"
#include "base/rng.h"
#include "bench/load_client.h"
#include "bench/load_page.h"
#include "bench/load_report.h"
#include "bench/request_rows.h"
#include "bench/trace_flags.h"
#include "bench/workload.h"
#include "cli/command_line.h"
#include "cli/version.h"
#include "sched/step_cost.h"
#include "sim/trace.h"
#include "terminal/progress.h"

namespace headrace {
namespace {

constexpr const char* kBenchServeFooter = R"(Examples:
  headrace bench serve --port 8000 --num-prompts 512 --max-concurrency 256
  headrace bench serve --request-rate 20 --random-input-len 1k --random-output-len 200 -o json
  headrace bench serve --requests mix.json --vocab-size 128256      ([[prompt, output], ...])
  headrace bench serve --num-prompts 256 --report run.html

Prompts are random token ids, greedy, ends ignored, every answer's tokens counted. Closed loop:
--max-concurrency. Open loop: --request-rate, with random gaps as of independent clients.)";

constexpr int64_t kServedTokensMax = 1 << 24;
constexpr int64_t kRequestsMax = 1 << 20;

struct ServeLoadFlags {
  LoadClientOptions client;
  std::string base_url;
  std::string model;
  std::string requests;                       // file
  std::string rows;                           // file
  std::string report;                         // file
  TraceFlags trace{.options = {.kind = ""}};  // kind empty: none
  int32_t input = 128, output = 128, warm_ups = 1;
  int32_t prompts = 0;  // 0: 64; of a trace 2,000, or all of a file
  int32_t vocab_size = 30000;
  double rate = 0;                   // requests a second; 0: all at once
  std::vector<std::string> goodput;  // targets, "ttft:500"
  uint64_t seed = 0;
  bool stream = true;
  std::string format = "text";
};

void add_server_flags(CLI::App& app, ServeLoadFlags& flags) {
  constexpr const char* kGroup = "Server";
  app.add_option("--base-url", flags.base_url, "http://IP:PORT, instead of --host and --port")
      ->type_name("URL")
      ->group(kGroup);
  app.add_option("--host", flags.client.host, "The server's address")
      ->type_name("IP")
      ->group(kGroup);
  app.add_option("--port", flags.client.port, "Its port")->type_name("N")->group(kGroup);
  app.add_option("--endpoint", flags.client.path, "Where requests go")
      ->type_name("PATH")
      ->group(kGroup);
  app.add_option("--api-key", flags.client.api_key, "Sent with every request")
      ->type_name("KEY")
      ->group(kGroup);
  app.add_option("--model", flags.model, "The model's name (default: the one served)")
      ->type_name("NAME")
      ->group(kGroup);
}

void add_work_flags(CLI::App& app, ServeLoadFlags& flags) {
  constexpr const char* kGroup = "Work";
  const auto add_size = [&](const std::string& names, int32_t& value, int64_t low, int64_t high,
                            const std::string& description) {
    app.add_option(names, value, description)
        ->transform(size_between(low, high))
        ->type_name("N")
        ->group(kGroup);
  };
  app.add_option("--requests", flags.requests, "Lengths from a file instead of all alike")
      ->type_name("FILE")
      ->group(kGroup);
  add_trace_flags(app, flags.trace, kGroup);
  add_size("--num-prompts", flags.prompts, 1, kRequestsMax,
           "How many requests (default: 64; of a trace 2,000, or all of a file)");
  add_size("--random-input-len,--input-len", flags.input, 1, kServedTokensMax,
           "Tokens of a prompt");
  add_size("--random-output-len,--output-len", flags.output, 1, kServedTokensMax,
           "Tokens of an answer");
  add_size("--vocab-size", flags.vocab_size, 1, INT32_MAX, "Random ids lie below it");
  app.add_option("--max-concurrency", flags.client.concurrency_max,
                 "Most requests under way; the others wait here (0: no bound)")
      ->check(CLI::Range(0, 1 << 16))
      ->type_name("N")
      ->group(kGroup);
  app.add_option(
         "--request-rate", flags.rate,
         "Requests a second, on average (0: all at once; a trace: 10, a file: as it has them)")
      ->check(number_between(0.0, 1e6))
      ->type_name("X")
      ->group(kGroup);
  app.add_flag("--stream,!--no-stream", flags.stream, "Answers as server-sent events")
      ->group(kGroup);
  add_size("--num-warmups", flags.warm_ups, 0, kRequestsMax, "Requests before the clock starts");
  app.add_option("--seed", flags.seed, "Of ids and gaps")->type_name("N")->group(kGroup);
  app.add_option("--client-threads", flags.client.threads, "Threads that send and read")
      ->check(CLI::Range(1, 256))
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--rows", flags.rows, "Also write a row for each request, JSON lines")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--report", flags.report, "Also write the run as one HTML file with plots")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option(
         "--goodput", flags.goodput,
         "Also count the requests that kept these targets in milliseconds: ttft:500 tpot:30 "
         "e2el:5000")
      ->type_name("NAME:MS...")
      ->group(kGroup);
  add_choice(app, "-o,--output", flags.format, {"text", "json"}, "Output format")->group(kGroup);
}

// "http://127.0.0.1:8000" or "127.0.0.1:8000"
Status apply_base_url(ServeLoadFlags& flags) {
  std::string_view url = flags.base_url;
  if (url.empty()) return ok_status();
  if (url.starts_with("http://")) url.remove_prefix(7);
  while (url.ends_with('/')) url.remove_suffix(1);
  const size_t colon = url.rfind(':');
  if (colon != url.npos) {
    const std::string_view port = url.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(port.data(), port.data() + port.size(), flags.client.port);
    if (error == std::errc() && end == port.data() + port.size()) {
      flags.client.host = std::string(url.substr(0, colon));
      return ok_status();
    }
  }
  return invalid_argument(fmt::format("--base-url {}: expected http://IP:PORT", flags.base_url));
}

std::string request_body(const ServeLoadFlags& flags, const WorkItem& item, Rng& rng) {
  Json::Array prompt;
  for (int32_t i = 0; i < item.prompt; ++i) {
    prompt.emplace_back(static_cast<int64_t>(rng.below(static_cast<uint64_t>(flags.vocab_size))));
  }
  Json body = Json::object();
  if (!flags.model.empty()) body.set("model", flags.model);
  body.set("prompt", std::move(prompt)).set("max_tokens", item.output);
  body.set("temperature", 0).set("ignore_eos", true).set("stream", flags.stream);
  if (flags.stream) {
    Json options = Json::object();
    body.set("stream_options", options.set("include_usage", true));
  }
  return write_json(body);
}

// Gaps of an open loop are exponential: clients that know nothing of each other.
std::vector<LoadItem> load_items(const ServeLoadFlags& flags, const std::vector<WorkItem>& items,
                                 Rng& rng) {
  std::vector<LoadItem> load;
  double at = 0;
  for (const WorkItem& item : items) {
    load.push_back({.at_seconds = at, .body = request_body(flags, item, rng)});
    if (flags.rate > 0) at -= std::log1p(-rng.uniform()) / flags.rate;
  }
  return load;
}

LoadItem load_item(const ServeLoadFlags& flags, const TraceRequest& request) {
  Json::Array prompt;
  for (TokenId token : prompt_of(request, flags.vocab_size)) {
    prompt.emplace_back(static_cast<int64_t>(token));
  }
  Json body = Json::object();
  if (!flags.model.empty()) body.set("model", flags.model);
  body.set("prompt", std::move(prompt)).set("max_tokens", request.output);
  body.set("temperature", 0).set("ignore_eos", true).set("stream", flags.stream);
  body.set("priority", request.priority);
  if (request.background) body.set("service_tier", "flex");
  if (!request.tenant.empty()) body.set("user", request.tenant);
  if (flags.stream) body.set("stream_options", Json::object().set("include_usage", true));
  return {.at_seconds = request.arrival_seconds, .body = write_json(body)};
}

// The answers of some of a trace's tenants, apart.
Json::Object tenant_rows(const std::vector<TraceRequest>& trace,
                         std::span<const LoadOutcome> outcomes) {
  std::map<std::string, std::vector<LoadOutcome>> tenants;
  for (size_t i = 0; i < trace.size(); ++i) tenants[trace[i].tenant].push_back(outcomes[i]);
  Json::Object rows;
  if (tenants.size() < 2) return rows;
  for (const auto& [tenant, theirs] : tenants) {
    rows.emplace_back(tenant, Json(to_json(summarise(theirs))));
  }
  return rows;
}

void write_rows(std::span<const LoadItem> load, const std::vector<TraceRequest>& trace,
                std::span<const LoadOutcome> outcomes, RequestRowFile& rows) {
  for (size_t i = 0; i < load.size(); ++i) {
    const LoadOutcome& outcome = outcomes[i];
    rows.write({.arrival_seconds = load[i].at_seconds,
                .ttft_seconds = outcome.first_token - outcome.sent,
                .tpot_seconds = outcome.per_token(),
                .completion_seconds = outcome.ended - outcome.sent,
                .prompt_tokens = outcome.prompt_tokens,
                .output_tokens = outcome.output_tokens,
                .tenant = trace.empty() ? "" : trace[i].tenant,
                .error = outcome.error});
  }
}

Result<std::vector<WorkItem>> work_items(const ServeLoadFlags& flags) {
  if (!flags.requests.empty()) return read_workload_file(flags.requests);
  constexpr int32_t kPrompts = 64;
  const int32_t prompts = flags.prompts > 0 ? flags.prompts : kPrompts;
  return std::vector<WorkItem>(static_cast<size_t>(prompts), {flags.input, flags.output});
}

Status check_tokens(std::span<const WorkItem> items, std::span<const LoadOutcome> outcomes) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (!outcomes[i].ok() || outcomes[i].output_tokens == items[i].output) continue;
    return internal_error(fmt::format("request {} gave {} tokens instead of {}", i,
                                      outcomes[i].output_tokens, items[i].output));
  }
  return ok_status();
}

// The sum of a counter over its series with `label` (empty: all), in Prometheus' text format; 0
// where there is none.
double counter_in(std::string_view metrics, std::string_view name, std::string_view label = "") {
  double sum = 0;
  while (!metrics.empty()) {
    const size_t end = std::min(metrics.find('\n'), metrics.size());
    const std::string_view line = metrics.substr(0, end);
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
    if (!line.starts_with(name) || line.size() == name.size()) continue;
    if (line[name.size()] != '{' && line[name.size()] != ' ') continue;
    if (line.find(label) == line.npos) continue;
    sum += std::strtod(std::string(line.substr(line.rfind(' ') + 1)).c_str(), nullptr);
  }
  return sum;
}

// What the server's engine did meanwhile, where its /metrics tell.
struct ServerSteps {
  double steps = 0, host_seconds = 0, device_seconds = 0, device_gap_seconds = 0;
  // Of background requests (sched/scheduler.h).
  double background_tokens = 0, room_seconds = 0, used_seconds = 0;
  double beside_steps = 0, beside_steps_over = 0, beside_seconds = 0;
  double beside_seconds_max = 0;  // since the server started
  // Of speculative decoding (sched/scheduler.h, ProposalStats).
  double drafts = 0, draft_tokens = 0, accepted_tokens = 0;
  std::array<double, ProposalStats::kPositions> accepted_at{};

  static ServerSteps now(const LoadClientOptions& client) {
    ServerSteps steps;
    const auto metrics = fetch(client, "/metrics");
    if (!metrics.ok()) return steps;
    for (const auto& [name, sum] : kSums) steps.*sum = counter_in(metrics->body, name);
    steps.beside_seconds_max = counter_in(metrics->body, "headrace:beside_step_seconds_max");
    for (size_t i = 0; i < steps.accepted_at.size(); ++i) {
      steps.accepted_at[i] =
          counter_in(metrics->body, "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                     fmt::format("position=\"{}\"", i));
    }
    return steps;
  }
  ServerSteps since(const ServerSteps& before) const {
    ServerSteps steps = *this;
    for (const auto& [name, sum] : kSums) steps.*sum -= before.*sum;
    for (size_t i = 0; i < accepted_at.size(); ++i) steps.accepted_at[i] -= before.accepted_at[i];
    return steps;
  }
  double host_us_per_step() const { return host_seconds * 1e6 / steps; }
  double gpu_gap_share() const {
    return device_gap_seconds / (device_seconds + device_gap_seconds);
  }

  struct Sum {
    const char* name;
    double ServerSteps::*sum;
  };
  static const std::array<Sum, 13> kSums;
};
const std::array<ServerSteps::Sum, 13> ServerSteps::kSums = {{
    {"headrace:steps_total", &ServerSteps::steps},
    {"headrace:host_seconds_total", &ServerSteps::host_seconds},
    {"headrace:device_seconds_total", &ServerSteps::device_seconds},
    {"headrace:device_gap_seconds_total", &ServerSteps::device_gap_seconds},
    {"headrace:background_tokens_total", &ServerSteps::background_tokens},
    {"headrace:background_room_seconds_total", &ServerSteps::room_seconds},
    {"headrace:background_used_seconds_total", &ServerSteps::used_seconds},
    {"headrace:beside_steps_total", &ServerSteps::beside_steps},
    {"headrace:beside_steps_over_total", &ServerSteps::beside_steps_over},
    {"headrace:beside_step_seconds_total", &ServerSteps::beside_seconds},
    {"vllm:spec_decode_num_drafts_total", &ServerSteps::drafts},
    {"vllm:spec_decode_num_draft_tokens_total", &ServerSteps::draft_tokens},
    {"vllm:spec_decode_num_accepted_tokens_total", &ServerSteps::accepted_tokens},
}};

// The server's fitted cost of steps: what bench simulate --step-cost reads. Null where its /metrics
// do not tell.
Json step_cost_of(const LoadClientOptions& client) {
  const auto metrics = fetch(client, "/metrics");
  if (!metrics.ok()) return Json();
  Json cost = Json::object();
  std::string_view text = metrics->body;
  for (const StepCostTerm& field : kStepCostTerms) {
    const std::string term = fmt::format("term=\"{}\"", field.name);
    const size_t at = text.find(term);
    if (at == text.npos) return Json();
    const size_t space = text.find(' ', at);
    cost.set(field.name, std::strtod(std::string(text.substr(space + 1, 32)).c_str(), nullptr));
  }
  return cost;
}

// Of a batch beside the load.
void add_background(const ServerSteps& steps, Json::Object& row) {
  row.emplace_back("background_tokens", static_cast<int64_t>(steps.background_tokens));
  if (steps.room_seconds > 0) {
    row.emplace_back("background_room_seconds", steps.room_seconds);
    row.emplace_back("background_fill", steps.used_seconds / steps.room_seconds);
  }
  if (steps.beside_steps == 0) return;
  row.emplace_back("beside_steps", static_cast<int64_t>(steps.beside_steps));
  row.emplace_back("beside_steps_over_share", steps.beside_steps_over / steps.beside_steps);
  row.emplace_back("beside_step_ms_mean", steps.beside_seconds * 1e3 / steps.beside_steps);
  row.emplace_back("beside_step_ms_max", steps.beside_seconds_max * 1e3);
}

// Under the names and in the units of `vllm bench serve`.
void add_drafts(const ServerSteps& steps, Json::Object& row) {
  if (steps.drafts == 0) return;
  row.emplace_back("spec_decode_acceptance_rate", steps.accepted_tokens / steps.draft_tokens * 100);
  row.emplace_back("spec_decode_acceptance_length", 1 + steps.accepted_tokens / steps.drafts);
  row.emplace_back("spec_decode_num_drafts", static_cast<int64_t>(steps.drafts));
  row.emplace_back("spec_decode_draft_tokens", static_cast<int64_t>(steps.draft_tokens));
  row.emplace_back("spec_decode_accepted_tokens", static_cast<int64_t>(steps.accepted_tokens));
  Json::Array rates;
  for (const double accepted : steps.accepted_at) {
    if (accepted > 0) rates.push_back(accepted / steps.drafts);
  }
  row.emplace_back("spec_decode_per_position_acceptance_rates", Json(std::move(rates)));
}

std::string drafts_text(const ServerSteps& steps) {
  if (steps.drafts == 0) return "";
  std::string text = fmt::format(
      "drafts          {:.0f}, {:.2f} tokens each with the model's own, {:.1f} % of {:.0f} "
      "proposed ones right; by position",
      steps.drafts, 1 + steps.accepted_tokens / steps.drafts,
      steps.accepted_tokens / steps.draft_tokens * 100, steps.draft_tokens);
  for (const double accepted : steps.accepted_at) {
    if (accepted > 0) text += fmt::format(" {:.1f} %", accepted / steps.drafts * 100);
  }
  return text + "\n";
}

void add_steps(const ServerSteps& steps, Json::Object& row) {
  if (steps.steps == 0) return;
  add_drafts(steps, row);
  row.emplace_back("steps", static_cast<int64_t>(steps.steps));
  row.emplace_back("host_us_per_step", steps.host_us_per_step());
  if (steps.background_tokens > 0) add_background(steps, row);
  if (steps.device_seconds == 0) return;
  row.emplace_back("gpu_ms_per_step", steps.device_seconds * 1e3 / steps.steps);
  row.emplace_back("gpu_gap_share", steps.gpu_gap_share());
}

std::string steps_text(const ServerSteps& steps) {
  if (steps.steps == 0) return "";
  std::string text = fmt::format("steps           {:.0f}, host {:.1f} us each", steps.steps,
                                 steps.host_us_per_step());
  if (steps.device_seconds > 0) {
    text += fmt::format(", GPU {:.3f} ms each, {:.2f} % idle between them",
                        steps.device_seconds * 1e3 / steps.steps, steps.gpu_gap_share() * 100);
  }
  if (steps.background_tokens > 0) {
    text += fmt::format(
        "\nbackground      {:.0f} tokens; {:.3f} of {:.3f} s of room; {:.0f} steps beside live "
        "answers, {:.0f} of them too long, the longest ever {:.2f} ms",
        steps.background_tokens, steps.used_seconds, steps.room_seconds, steps.beside_steps,
        steps.beside_steps_over, steps.beside_seconds_max * 1e3);
  }
  return text + "\n" + drafts_text(steps);
}

Result<std::vector<LoadOutcome>> run_load_with_progress(LoadClientOptions client,
                                                        const std::vector<LoadItem>& load) {
  std::atomic<int64_t> ended{0};
  client.ended = &ended;
  const ProgressWatch progress("load", "requests", static_cast<double>(load.size()),
                               [&ended] { return static_cast<double>(ended); });
  return run_load(client, load);
}

// The facts of a page: what ran against what.
std::vector<std::pair<std::string, std::string>> facts_of(const ServeLoadFlags& flags,
                                                          size_t requests) {
  const std::string rate =
      flags.rate > 0 ? fmt::format("{:g} a second", flags.rate) : "all at once";
  const int most = flags.client.concurrency_max;
  return {{"server",
           fmt::format("http://{}:{}{}", flags.client.host, flags.client.port, flags.client.path)},
          {"requests", fmt::format("{}, {}{}", requests, rate,
                                   most > 0 ? fmt::format(", at most {} under way", most) : "")},
          {"answers", flags.stream ? "as server-sent events" : "whole"},
          {"ended", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
          {"measured by", fmt::format("headrace {} ({})", program_version(), build_commit())}};
}

Result<int> run(ServeLoadFlags& flags) {
  HR_RETURN_IF_ERROR(apply_base_url(flags));
  LatencyTargets targets;
  for (const std::string& text : flags.goodput) {
    HR_RETURN_IF_ERROR(parse_latency_target(text, targets));
  }
  std::vector<TraceRequest> trace;
  std::vector<WorkItem> items;
  TraceOptions& options = flags.trace.options;
  if (options.kind.empty()) {
    HR_ASSIGN_OR_RETURN(items, work_items(flags));
  } else {
    options.requests = flags.prompts;
    options.seed = flags.seed;
    options.rate = flags.rate;
    HR_ASSIGN_OR_RETURN(trace, open_trace(flags.trace));
    for (const TraceRequest& each : trace) items.push_back({each.prompt_tokens(), each.output});
  }
  Rng rng(flags.seed);
  const std::vector<WorkItem> first(static_cast<size_t>(flags.warm_ups), items.front());
  const std::vector<LoadItem> warm_up = load_items(flags, first, rng);
  std::vector<LoadItem> load;
  if (trace.empty()) load = load_items(flags, items, rng);
  for (const TraceRequest& each : trace) load.push_back(load_item(flags, each));
  HR_ASSIGN_OR_RETURN(RequestRowFile rows, RequestRowFile::open(flags.rows));
  HR_ASSIGN_OR_RETURN(const LoadPageFile page, LoadPageFile::open(flags.report));
  HR_RETURN_IF_ERROR(run_load(flags.client, warm_up).status());
  const ServerSteps before = ServerSteps::now(flags.client);
  HR_ASSIGN_OR_RETURN(const auto outcomes, run_load_with_progress(flags.client, load));
  const ServerSteps steps = ServerSteps::now(flags.client).since(before);
  write_rows(load, trace, outcomes, rows);
  HR_RETURN_IF_ERROR(rows.close());
  if (page.is_wanted()) {
    HR_RETURN_IF_ERROR(page.write(
        {.facts = facts_of(flags, load.size()), .outcomes = outcomes, .more = steps_text(steps)}));
  }
  HR_RETURN_IF_ERROR(check_tokens(items, outcomes));
  const LoadReport report = summarise(outcomes);
  const int64_t in_time = count_in_time(outcomes, targets);
  if (flags.format == "json") {
    Json::Object row{{"commit", build_commit()},
                     {"stream", flags.stream},
                     {"max_concurrency", flags.client.concurrency_max},
                     {"request_rate", flags.rate}};
    for (auto& member : to_json(report)) row.push_back(std::move(member));
    if (targets.any()) {
      row.emplace_back("in_time", in_time);
      row.emplace_back("request_goodput", report.per_second(in_time));
    }
    add_steps(steps, row);
    if (Json cost = step_cost_of(flags.client); !cost.is_null()) {
      row.emplace_back("step_cost", std::move(cost));
    }
    if (!trace.empty()) row.emplace_back("trace", options.kind);
    if (auto tenants = tenant_rows(trace, outcomes); !tenants.empty()) {
      row.emplace_back("tenants", Json(std::move(tenants)));
    }
    fmt::print("{}\n", write_json(Json(std::move(row))));
  } else {
    fmt::print("{}{}", to_text(report), steps_text(steps));
    if (targets.any()) {
      fmt::print("in time         {}, {:.2f} a second\n", in_time, report.per_second(in_time));
    }
    for (const auto& [tenant, row] : tenant_rows(trace, outcomes)) {
      fmt::print("{}: {}\n", tenant, write_json(row));
    }
  }
  return report.failed > 0 ? 1 : 0;
}

}  // namespace

SubcommandRun define_bench_serve(CLI::App& app) {
  auto flags = std::make_shared<ServeLoadFlags>();
  add_server_flags(app, *flags);
  add_work_flags(app, *flags);
  app.footer(kBenchServeFooter);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
