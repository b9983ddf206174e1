#include "bench/bench_simulate_command.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include <fmt/format.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "bench/bench_report.h"
#include "bench/request_rows.h"
#include "bench/trace_flags.h"
#include "cli/command_line.h"
#include "cli/engine_flags.h"
#include "sched/queue_policy.h"
#include "sim/trace_replay.h"

namespace headrace {
namespace {

struct SimulateFlags {
  TraceFlags trace;
  SchedulerOptions scheduler;
  std::string machine = "h200-8b";
  std::vector<std::string> policies = {"fcfs"};
  int32_t kv_tokens = 0;
  int32_t kv_host_tokens = 0;
  double load = 0;
  double slo_ttft = 0.5, slo_tpot = 0.03;
  bool declare_lengths = false;
  std::string step_cost;  // file
  std::string rows;       // file
  std::string format = "table";
};

std::vector<double> each(const ReplayReport& report, double ReplayReport::Row::*field) {
  std::vector<double> values;
  for (const auto& row : report.rows) {
    if (!row.refused) values.push_back(row.*field);
  }
  return values;
}

// Seconds to the end, per token of the answer.
std::vector<double> normalised(const ReplayReport& report) {
  std::vector<double> values;
  for (const auto& row : report.rows) {
    if (!row.refused) values.push_back(row.normalised());
  }
  return values;
}

double mean_of(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Requests a second that kept both targets.
double goodput(const ReplayReport& report, const SimulateFlags& flags) {
  const auto good = std::count_if(report.rows.begin(), report.rows.end(), [&](const auto& row) {
    return !row.refused && row.ttft <= flags.slo_ttft && row.tpot <= flags.slo_tpot;
  });
  return static_cast<double>(good) / report.seconds;
}

Json row_of(const std::string& policy, const ReplayReport& report, const SimulateFlags& flags) {
  using Row = ReplayReport::Row;
  const auto ttft = each(report, &Row::ttft), tpot = each(report, &Row::tpot),
             completion = each(report, &Row::completion);
  const SchedulerStats& stats = report.stats;
  const auto tokens = static_cast<double>(stats.generation_tokens);
  Json json = Json::object();
  json.set("policy", policy)
      .set("trace", flags.trace.options.kind)
      .set("rate", flags.trace.options.rate);
  json.set("requests", static_cast<int64_t>(report.rows.size()));
  json.set("seconds", report.seconds).set("output_tokens_per_s", tokens / report.seconds);
  json.set("ttft_p50", percentile_of(ttft, 0.5)).set("ttft_p99", percentile_of(ttft, 0.99));
  json.set("tpot_p50", percentile_of(tpot, 0.5)).set("tpot_p99", percentile_of(tpot, 0.99));
  json.set("arriving_tokens_per_s",
           static_cast<double>(report.arrivals_tokens) / std::max(report.arrivals_seconds, 1e-9));
  json.set("completion_mean", mean_of(completion));
  json.set("completion_p50", percentile_of(completion, 0.5));
  json.set("completion_p99", percentile_of(completion, 0.99));
  json.set("normalised_mean", mean_of(normalised(report)));
  json.set("busy", report.busy_seconds / report.seconds);
  if (report.background_tokens > 0) {
    json.set("background_tokens_per_s",
             static_cast<double>(report.background_tokens) / report.seconds);
    json.set("beside_seconds_max", report.beside_seconds_max);
    // Of the room that live steps left under --background-step.
    json.set("background_fill",
             stats.background_used_seconds / std::max(stats.background_room_seconds, 1e-9));
  }
  json.set("goodput", goodput(report, flags)).set("running_mean", report.running_mean);
  json.set("waste", report.kv_slots.share()).set("kv_slots", kv_slots_json(report.kv_slots));
  const uint64_t in_vain = stats.ended_row_tokens + stats.recomputed_tokens + stats.dropped_tokens;
  json.set("computed_tokens", report.computed_tokens);
  json.set("useful_share", 1 - static_cast<double>(in_vain) / static_cast<double>(std::max<int64_t>(
                                                                  1, report.computed_tokens)));
  json.set("hit_rate", static_cast<double>(stats.prefix_cache_hits) /
                           static_cast<double>(std::max<uint64_t>(1, stats.prefix_cache_queries)));
  json.set("preemptions", static_cast<int64_t>(stats.preemptions));
  json.set("yields", static_cast<int64_t>(stats.yields));
  json.set("promotions", static_cast<int64_t>(stats.promotions));
  json.set("pages_stored", static_cast<int64_t>(stats.pages_moved.stored));
  json.set("pages_stored_ahead", static_cast<int64_t>(stats.pages_moved.stored_ahead));
  json.set("pages_loaded", static_cast<int64_t>(stats.pages_moved.loaded));
  json.set("pages_loaded_ahead", static_cast<int64_t>(stats.pages_moved.loaded_ahead));
  json.set("recomputed_tokens", static_cast<int64_t>(stats.recomputed_tokens));
  json.set("ended_row_tokens", static_cast<int64_t>(stats.ended_row_tokens));
  json.set("idle_row_steps", static_cast<int64_t>(stats.idle_row_steps));
  json.set("us_per_step", 1e6 * report.scheduler_seconds / static_cast<double>(report.steps));
  return json;
}

void print_table_row(const Json& row) {
  const auto number = [&](const char* name) { return row.find(name)->as_double(); };
  fmt::print(
      "{:<17} {:>8.0f} {:>8.3f} {:>8.3f} {:>7.1f} {:>7.1f} {:>9.3f} {:>8.3f} {:>9.3f} {:>6.1f} "
      "{:>8.2f} {:>7.1f} "
      "{:>6.2f} {:>6.2f} {:>8.0f} {:>8.0f} {:>6.1f}\n",
      row.find("policy")->as_string(), number("arriving_tokens_per_s"), number("ttft_p50"),
      number("ttft_p99"), 1e3 * number("tpot_p50"), 1e3 * number("tpot_p99"),
      number("completion_mean"), number("completion_p50"), number("completion_p99"),
      1e3 * number("normalised_mean"), number("goodput"), number("running_mean"),
      100 * number("waste"), 100 * number("hit_rate"), number("preemptions"), number("yields"),
      number("us_per_step"));
}

void print_tenants(const ReplayReport& report) {
  std::vector<std::string> tenants;
  for (const auto& row : report.rows) tenants.push_back(row.tenant);
  std::sort(tenants.begin(), tenants.end());
  tenants.erase(std::unique(tenants.begin(), tenants.end()), tenants.end());
  if (tenants.size() < 2) return;
  for (const std::string& tenant : tenants) {
    std::vector<double> ttft;
    for (const auto& row : report.rows) {
      if (row.tenant == tenant && !row.refused) ttft.push_back(row.ttft);
    }
    const LatencyHistogram& gaps = report.token_gaps.at(tenant);
    fmt::print(
        "    {:<10} {:>6} requests, TTFT p50 {:.3f} s, p99 {:.3f} s; between tokens p50 {:.1f} ms, "
        "p99 {:.1f} ms\n",
        tenant, ttft.size(), percentile_of(ttft, 0.5), percentile_of(ttft, 0.99),
        1e3 * gaps.percentile(0.5), 1e3 * gaps.percentile(0.99));
  }
}

void write_rows(const std::string& policy, const std::vector<TraceRequest>& trace,
                const ReplayReport& report, RequestRowFile& rows) {
  for (size_t i = 0; i < trace.size(); ++i) {
    const ReplayReport::Row& row = report.rows[i];
    rows.write({.policy = policy,
                .arrival_seconds = trace[i].arrival_seconds,
                .ttft_seconds = row.ttft,
                .tpot_seconds = row.tpot,
                .completion_seconds = row.completion,
                .prompt_tokens = trace[i].prompt_tokens(),
                .output_tokens = row.output,
                .tenant = trace[i].tenant,
                .error = row.refused ? "refused" : ""});
  }
}

// Requests a second, as they came.
double rate_of(const std::vector<TraceRequest>& trace) {
  const double last = trace.back().arrival_seconds;
  return last > 0 ? static_cast<double>(trace.size()) / last : 0;
}

// {"step_cost": {...}} or the inner object, as bench serve prints it. Terms it lacks are 0.
Result<StepCost> read_step_cost(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  const auto json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!json.ok()) return json.status().with_context(path);
  const Json* object = json->find("step_cost");
  if (object == nullptr) object = &*json;
  StepCost cost;
  for (const StepCostTerm& term : kStepCostTerms) {
    const Json* value = object->find(term.name);
    const bool may_lack = term.coefficient != &StepCost::base;
    if (value == nullptr && may_lack) continue;
    if (value == nullptr || !value->is_number() || value->as_double() < 0) {
      return invalid_argument(
          fmt::format("{}: {} must be a number of seconds, 0 or more", path, term.name));
    }
    cost.*term.coefficient = value->as_double();
  }
  return cost;
}

// What srpt-declared does when clients know the true lengths: no policy's, a bound to look up to.
constexpr std::string_view kOracle = "srpt-oracle";

Result<ReplayReport> replay_with(const std::string& policy, std::vector<TraceRequest> trace,
                                 const SimulateFlags& flags, const MachineRow& machine) {
  SchedulerOptions options = flags.scheduler;
  options.policy = policy == kOracle ? "srpt-declared" : policy;
  if (flags.declare_lengths || policy == kOracle) {
    for (TraceRequest& request : trace) request.max_tokens = request.output;
  }
  return replay(trace, options, machine.cost);
}

Result<int> run_simulate(SimulateFlags& flags) {
  HR_ASSIGN_OR_RETURN(MachineRow machine, find_machine(flags.machine));
  if (!flags.step_cost.empty()) {
    HR_ASSIGN_OR_RETURN(machine.cost, read_step_cost(flags.step_cost));
  }
  SchedulerOptions& scheduler = flags.scheduler;
  TraceOptions& options = flags.trace.options;
  scheduler.max_model_len = options.max_model_len;
  scheduler.groups = {{.block_tokens = 16}};
  const int32_t kv_tokens = flags.kv_tokens > 0 ? flags.kv_tokens : machine.kv_tokens;
  scheduler.block_count = kv_tokens / 16;
  if (flags.kv_host_tokens > 0) {
    scheduler.tiers = {{.pages = flags.kv_host_tokens / 16, .seconds_per_page = 42e-6}};
  }
  scheduler.slo_classes = {{"default", flags.slo_ttft, flags.slo_tpot}};
  HR_ASSIGN_OR_RETURN(std::vector<TraceRequest> trace, open_trace(flags.trace));
  if (flags.load > 0) {
    HR_ASSIGN_OR_RETURN(const double full, saturated_rate(trace, scheduler, machine.cost));
    options.rate = flags.load * full;
    HR_ASSIGN_OR_RETURN(trace, open_trace(flags.trace));
  }
  if (options.rate == 0) options.rate = rate_of(trace);
  scheduler.max_queued_requests = static_cast<int32_t>(trace.size());
  if (flags.format == "table") {
    fmt::print(
        "{} requests of {}, {:.2f} a second, on {}; no policy's mean end is below {:.3f} s\n",
        trace.size(), options.kind, options.rate, flags.machine,
        completion_mean_floor(trace, scheduler, machine.cost));
    fmt::print(
        "policy               tok/s TTFT p50      p99 TPOT ms     p99 mean end      p50       p99  "
        "ms/tok goodput running waste%  hit% preempt   yields us/step\n");
  }
  HR_ASSIGN_OR_RETURN(RequestRowFile rows, RequestRowFile::open(flags.rows));
  for (const std::string& policy : flags.policies) {
    HR_ASSIGN_OR_RETURN(const ReplayReport report, replay_with(policy, trace, flags, machine));
    write_rows(policy, trace, report, rows);
    const Json row = row_of(policy, report, flags);
    if (flags.format == "json") {
      fmt::print("{}\n", write_json(row));
    } else {
      print_table_row(row);
      print_tenants(report);
    }
    std::fflush(stdout);
  }
  HR_RETURN_IF_ERROR(rows.close());
  return 0;
}

// How long steps may take.
void add_step_time_flags(CLI::App& app, SchedulerOptions& scheduler) {
  app.add_option("--tpot-target", scheduler.tpot_target_seconds,
                 "Seconds that a step with decodes may take: prompt chunks are cut to keep it");
  app.add_option("--tpot-over-share", scheduler.tpot_over_share,
                 "Share of the steps with decodes that may take longer than that")
      ->check(number_between(0.0, 1.0));
  app.add_option("--max-step-seconds", scheduler.step_seconds_max,
                 "Seconds that no step with decodes takes longer than, full steps included")
      ->check(number_between(0.0, 3600.0));
  app.add_option("--background-step", scheduler.background.step_seconds,
                 "Seconds that a step with background work may take beside live requests");
  app.add_option("--background-gap-step", scheduler.background.gap_seconds,
                 "The same of a step between live requests (0: no bound)");
}

}  // namespace

SubcommandRun define_bench_simulate(CLI::App& app) {
  const auto flags = std::make_shared<SimulateFlags>();
  flags->scheduler.max_num_batched_tokens = 2048;
  add_trace_flags(app, flags->trace, "Options");
  app.add_option("--requests", flags->trace.options.requests,
                 "How many requests (default: 2000, or all of a file)")
      ->check(CLI::Range(1, 10000000));
  app.add_option("--rate", flags->trace.options.rate,
                 "Requests a second (default: 10, or as in the file)")
      ->check(number_above_zero());
  app.add_option(
      "--load", flags->load,
      "Instead of --rate: share of the rate at which the machine ends this mix under fcfs "
      "when it is never idle (measured by a run of its own)");
  app.add_option("--seed", flags->trace.options.seed, "Of the trace");
  app.add_option("--step-cost", flags->step_cost,
                 "Instead of --machine's: a measured cost of steps, JSON as of bench serve")
      ->type_name("FILE");
  app.add_flag("--declare-lengths", flags->declare_lengths,
               "Clients set max_tokens to the true length: the oracle of sjf-declared");
  add_step_time_flags(app, flags->scheduler);
  add_choice(app, "--machine", flags->machine, machine_names(), "What a step costs");
  app.add_option("--policies", flags->policies,
                 "Policies to compare; srpt-oracle: srpt-declared with the true lengths")
      ->delimiter(',');
  app.add_option("--max-num-seqs", flags->scheduler.max_num_seqs, "Sequences that run at once")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--max-num-batched-tokens", flags->scheduler.max_num_batched_tokens,
                 "Most tokens of a step")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--steps-in-flight", flags->scheduler.steps_in_flight_max,
                 "Steps that are planned before the first of them has ended: a GPU's engine has 2")
      ->check(CLI::Range(1, 8));
  app.add_option(
      "--kv-host-tokens", flags->kv_host_tokens,
      "Tokens of host memory below it; 16 of them come back in 42 us (2 MiB at 50 GB/s)");
  app.add_option("--kv-tokens", flags->kv_tokens, "Tokens of KV memory (default: the machine's)");
  app.add_option("--mlfq-quantum", flags->scheduler.mlfq_quantum_seconds,
                 "Seconds of mlfq's first quantum; 0: the shortest step, as measured")
      ->check(number_between(0.0, 3600.0));
  app.add_option("--crowd-step-ratio", flags->scheduler.crowd_step_ratio,
                 "fair: a step with prompts of a tenant with more than its share takes at most so "
                 "many times what its decodes take; 0: no bound")
      ->check(number_between(0.0, 1000.0));
  app.add_option("--admission-headroom", flags->scheduler.admission_headroom,
                 "Who joins leaves pages for so much of the growth that is expected of what runs; "
                 "0: it need not")
      ->check(number_between(0.0, 100.0));
  add_choice(
      app, "--static-ended-rows", flags->scheduler.static_computes_ended_rows, kEndedRowsComputed,
      "static: rows that have ended are computed until their batch has, or hold their slots");
  app.add_option("--promote-after-steps", flags->scheduler.promote_after_steps,
                 "Steps after which a waiting request goes first");
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching",
               flags->scheduler.enable_prefix_caching, "Keep prefixes");
  add_choice(app, "--prefix-cache-eviction", flags->scheduler.prefix_cache_eviction,
             {"lru", "lfu", "cost"}, "What goes first from the prefix cache");
  app.add_option("--slo-ttft", flags->slo_ttft, "Seconds to the first token, for goodput");
  app.add_option("--slo-tpot", flags->slo_tpot, "Seconds per later token, for goodput");
  app.add_option("--rows", flags->rows, "Also write a row for each request, JSON lines")
      ->type_name("FILE");
  add_choice(app, "--format", flags->format, {"table", "json"}, "How rows are printed");
  return [flags] { return run_simulate(*flags); };
}

}  // namespace headrace
