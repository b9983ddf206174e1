#include "bench/bench_throughput_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "bench/bench_report.h"
#include "bench/step_trace.h"
#include "bench/workload.h"
#include "cli/engine_flags.h"
#include "cli/load_progress.h"
#include "cli/model_flags.h"
#include "cli/version.h"
#include "tensor/kernel_trace.h"
#include "terminal/progress.h"

namespace headrace {
namespace {

constexpr const char* kThroughputFooter = R"(Examples:
  headrace bench throughput -m model.gguf --input-len 128 --output-len 128 --num-prompts 64
  headrace bench throughput -m folder --requests mix.json -o json     ([[prompt, output], ...])

All requests are there at the start: random ids, greedy, ends ignored, counts checked. Their
lengths are known, so that on a GPU the longest answers go first: the result says "lengths
declared". With --policy fcfs they go by "order of arrival", and no length is used.)";

constexpr const char* kLatencyFooter = R"(Examples:
  headrace bench latency -m model.gguf --batch-size 1,8,32 --input-len 128 --output-len 256

Each batch is one group of sequences that start together. A step's time is that between two tokens
of a sequence once all have started; the prompts' steps are in the time to first token.)";

constexpr int64_t kLengthMax = 1 << 24;
constexpr int64_t kRequestsMax = 1 << 20;

// As many adapters as asked for may be in memory.
void fit_adapters(AdapterOptions& adapters) {
  adapters.count_max = std::max(adapters.count_max, adapters.dummies);
  adapters.rank_max = std::max(adapters.rank_max, adapters.dummy_rank);
}

struct WorkloadFlags {
  ModelFlags model{
      .stack = {.batch = {.cpu_max_num_seqs = 256}, .runner = {.graphs_at_start = true}}};
  std::string requests;  // file
  int32_t input = 128, output = 128, prompts = 64;
  std::vector<int64_t> batches{1};
  int32_t repetitions = 3;
  bool no_warm_up = false;
  bool trace = false;  // latency: what a step starts on the GPU
  std::string format = "text";
};

void add_length(CLI::App& app, const std::string& names, int32_t& value, int64_t high,
                const std::string& description) {
  app.add_option(names, value, description)
      ->transform(size_between(1, high))
      ->type_name("N")
      ->group("Work");
}

void add_shared_flags(CLI::App& app, WorkloadFlags& flags) {
  add_length(app, "--input-len,--random-input-len", flags.input, kLengthMax, "Tokens of a prompt");
  add_length(app, "--output-len,--random-output-len", flags.output, kLengthMax,
             "Tokens of an answer");
  app.add_option("-r,--repetitions", flags.repetitions, "Timed runs")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->group("Work");
  app.add_flag("--no-warmup", flags.no_warm_up, "No run before those that are timed")
      ->group("Work");
  AdapterOptions& adapters = flags.model.stack.adapters;
  app.add_option("--lora-dummy", adapters.dummies,
                 "So many random adapters, which requests have in turn (0: none)")
      ->check(CLI::Range(0, 1 << 12))
      ->type_name("N")
      ->group("Work");
  app.add_option("--lora-rank", adapters.dummy_rank, "Their rank")
      ->check(CLI::Range(1, 1 << 10))
      ->type_name("N")
      ->group("Work");
  add_choice(app, "-o,--output", flags.format, {"text", "json"}, "Output format")->group("Work");
  add_model_flags(app, flags.model);
  add_engine_flags(app, flags.model);
}

double median(const std::vector<double>& values) { return percentile(values, 0.5); }

struct Spread {
  double low, middle, high;
};
Spread spread_of(const std::vector<double>& values) {
  return {percentile(values, 0), median(values), percentile(values, 1)};
}
Json to_json(const Spread& spread) {
  return Json(Json::Object{{"median", spread.middle}, {"min", spread.low}, {"max", spread.high}});
}

Json::Object set_up(ModelStack& stack) {
  const StackInfo& info = stack.info();
  return {{"commit", build_commit()},
          {"model", info.model_name},
          {"weights", info.weight_types},
          {"parameters", info.parameter_count},
          {"threads", info.threads},
          {"machine", info.cpu_features},
          {"max_num_seqs", stack.engine().options().scheduler.max_num_seqs},
          {"max_num_batched_tokens", stack.engine().options().scheduler.max_num_batched_tokens}};
}

// Where the time of a step goes: the engine thread's by phase, and the GPU's between steps. And
// what its memory is used for, against the plan of the start.
Json::Object step_timing(ModelStack& stack, const WorkloadResult& run) {
  const double steps = static_cast<double>(run.steps);
  Json phases = Json::object();
  phases.set("total", run.host.total() * 1e6 / steps);
  for (size_t i = 0; i < kHostPhaseCount; ++i) {
    phases.set(kHostPhaseNames[i], run.host[static_cast<HostPhase>(i)] * 1e6 / steps);
  }
  Json::Object fields{{"steps", static_cast<int64_t>(run.steps)}, {"host_us_per_step", phases}};
  if (run.device_seconds > 0) {
    const bool gpu = stack.info().on_gpu;
    fields.emplace_back(gpu ? "gpu_ms_per_step" : "stage_ms_per_step",
                        run.device_seconds * 1e3 / steps);
    fields.emplace_back(gpu ? "gpu_gap_share" : "stage_idle_share", run.device_gap_share());
  }
  if (const auto memory = stack.gpu_memory()) {
    fields.emplace_back("gpu_bytes_planned", memory->planned_bytes);
    fields.emplace_back("gpu_bytes", memory->driver_bytes);
    fields.emplace_back("allocations", run.allocations);
  }
  return fields;
}

std::string step_timing_text(ModelStack& stack, const WorkloadResult& run) {
  const double steps = static_cast<double>(run.steps);
  std::string text = fmt::format("host us a step  {:.1f} (", run.host.total() * 1e6 / steps);
  for (size_t i = 0; i < kHostPhaseCount; ++i) {
    text += fmt::format("{}{} {:.1f}", i > 0 ? ", " : "", kHostPhaseNames[i],
                        run.host[static_cast<HostPhase>(i)] * 1e6 / steps);
  }
  text += ")\n";
  if (run.device_seconds > 0) {
    text += fmt::format("{:<16}{:.3f} ms a step, {:.2f} % idle between steps\n",
                        stack.info().on_gpu ? "GPU" : "a stage", run.device_seconds * 1e3 / steps,
                        run.device_gap_share() * 100);
  }
  if (const auto memory = stack.gpu_memory()) {
    text += fmt::format(
        "GPU memory      {:.2f} GiB in use, {:+.2f} % of it planned beyond; {} allocations in the "
        "run\n",
        static_cast<double>(memory->driver_bytes) / (1 << 30), memory->difference() * 100,
        run.allocations);
  }
  return text;
}

// Runs `items` as often as asked for, after one that is not counted.
Result<std::vector<WorkloadResult>> run_all(ModelStack& stack, const std::vector<WorkItem>& items,
                                            const WorkloadFlags& flags) {
  std::vector<WorkloadResult> results;
  const int warm_ups = flags.no_warm_up ? 0 : 1;
  double output_tokens = 0;
  for (const WorkItem& item : items) output_tokens += item.output;
  for (int i = 0; i < warm_ups + flags.repetitions; ++i) {
    const auto tokens = [&stack, before = stack.engine().stats().scheduler.generation_tokens] {
      return static_cast<double>(stack.engine().stats().scheduler.generation_tokens - before);
    };
    const ProgressWatch progress(i < warm_ups ? "warm-up" : fmt::format("run {}", i - warm_ups + 1),
                                 "tokens", output_tokens, tokens);
    HR_ASSIGN_OR_RETURN(WorkloadResult result,
                        run_workload(stack, items, static_cast<uint64_t>(i) + 1));
    if (i >= warm_ups) results.push_back(std::move(result));
  }
  return results;
}

template <class Value>
std::vector<double> each_run(const std::vector<WorkloadResult>& runs, const Value& value) {
  std::vector<double> values;
  for (const WorkloadResult& run : runs) values.push_back(value(run));
  return values;
}

// Of all requests of all runs.
template <class Value>
std::vector<double> each_request(const std::vector<WorkloadResult>& runs, const Value& value) {
  std::vector<double> values;
  for (const WorkloadResult& run : runs) {
    for (const WorkloadTimes& times : run.requests) values.push_back(value(times));
  }
  return values;
}

// ---- throughput ---------------------------------------------------------------------------------

Result<std::vector<WorkItem>> requested_items(const WorkloadFlags& flags) {
  if (flags.requests.empty()) {
    return std::vector<WorkItem>(static_cast<size_t>(flags.prompts), {flags.input, flags.output});
  }
  return read_workload_file(flags.requests);
}

void print_throughput(ModelStack& stack, const std::vector<WorkItem>& items,
                      const std::vector<WorkloadResult>& runs, const std::string& format) {
  const auto seconds = spread_of(each_run(runs, [](const auto& run) { return run.seconds; }));
  const auto rate = spread_of(each_run(runs, [](const auto& run) { return run.output_rate(); }));
  const auto ttft = each_request(runs, [](const auto& times) { return times.first_token * 1e3; });
  const auto tpot = each_request(runs, [](const auto& times) { return times.per_token() * 1e3; });
  const WorkloadResult& last = runs.back();
  if (format == "json") {
    Json::Object row = set_up(stack);
    row.insert(row.end(), {{"order", stack.info().order_label},
                           {"batch_shape", stack.info().batch_shape},
                           {"requests", items.size()},
                           {"prompt_tokens", last.prompt_tokens},
                           {"output_tokens", last.output_tokens},
                           {"seconds", to_json(seconds)},
                           {"output_tokens_per_s", to_json(rate)},
                           {"ttft_ms_p50", median(ttft)},
                           {"ttft_ms_p99", percentile(ttft, 0.99)},
                           {"tpot_ms_p50", median(tpot)},
                           {"tpot_ms_p99", percentile(tpot, 0.99)},
                           {"useful_share", last.useful_share()},
                           {"idle_row_steps", static_cast<int64_t>(last.idle_row_steps)}});
    row.emplace_back("kv_slots", kv_slots_json(last.kv_slots));
    for (auto& field : step_timing(stack, last)) row.push_back(std::move(field));
    fmt::print("{}\n", write_json(Json(std::move(row))));
    return;
  }
  const auto total = static_cast<double>(last.prompt_tokens + last.output_tokens);
  fmt::print("order           {}\n", stack.info().order_label);
  fmt::print("requests        {}  ({} prompt tokens, {} output tokens)\n", items.size(),
             last.prompt_tokens, last.output_tokens);
  fmt::print("seconds         {:.3f}  ({:.3f} to {:.3f})\n", seconds.middle, seconds.low,
             seconds.high);
  fmt::print("output tok/s    {:.1f}  ({:.1f} to {:.1f})\n", rate.middle, rate.low, rate.high);
  fmt::print("total tok/s     {:.1f}\n", total / seconds.middle);
  fmt::print("TTFT ms         p50 {:.1f}  p99 {:.1f}\n", median(ttft), percentile(ttft, 0.99));
  fmt::print("TPOT ms         p50 {:.2f}  p99 {:.2f}\n", median(tpot), percentile(tpot, 0.99));
  fmt::print("useful          {:.1f} % of {} computed tokens; {} row steps held by ended answers\n",
             100 * last.useful_share(), last.computed_tokens, last.idle_row_steps);
  fmt::print("KV waste        {}\n", kv_slots_text(last.kv_slots));
  fmt::print("steps           {}\n{}", last.steps, step_timing_text(stack, last));
}

int32_t longest(const std::vector<WorkItem>& items) {
  int32_t tokens = 0;
  for (const WorkItem& item : items) tokens = std::max(tokens, item.prompt + item.output);
  return tokens;
}

JobWork job_of(const std::vector<WorkItem>& items) {
  JobWork job{.requests = static_cast<int64_t>(items.size())};
  for (const WorkItem& item : items) {
    job.prompt_tokens += item.prompt;
    job.output_tokens += item.output;
    job.longest_output = std::max<int64_t>(job.longest_output, item.output);
  }
  return job;
}

Result<int> run_throughput(WorkloadFlags& flags) {
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  HR_ASSIGN_OR_RETURN(std::vector<WorkItem> items, requested_items(flags));
  StackOptions& options = flags.model.stack;
  fit_adapters(options.adapters);
  if (options.memory.max_model_len == 0) options.memory.max_model_len = longest(items);
  SchedulerOptions& scheduler = options.engine.scheduler;
  scheduler.max_queued_requests =
      std::max(scheduler.max_queued_requests, static_cast<int32_t>(items.size()));
  options.batch.job = job_of(items);
  HR_ASSIGN_OR_RETURN(const auto stack, load_with_progress(options));
  if (flags.format != "json") fmt::print("batch           {}\n", stack->info().batch_shape);
  if (stack->info().job_order == RequestOrder::kDeclared) {
    std::stable_sort(items.begin(), items.end(),
                     [](const WorkItem& a, const WorkItem& b) { return a.output > b.output; });
  }
  HR_ASSIGN_OR_RETURN(const auto runs, run_all(*stack, items, flags));
  print_throughput(*stack, items, runs, flags.format);
  return 0;
}

// ---- latency ------------------------------------------------------------------------------------

// The time between two tokens of the sequences that started last: between the tokens of the others
// lie steps with prompts of later ones.
double decode_step_ms(const std::vector<WorkloadTimes>& requests) {
  constexpr double kSameStep = 1e-4;  // seconds
  double last_start = 0;
  for (const WorkloadTimes& times : requests) last_start = std::max(last_start, times.first_token);
  std::vector<double> tokens;
  for (const WorkloadTimes& times : requests) {
    if (times.first_token >= last_start - kSameStep) tokens.push_back(times.per_token() * 1e3);
  }
  return median(tokens);
}

void print_latency(ModelStack& stack, int32_t batch, const WorkloadFlags& flags,
                   const std::vector<WorkloadResult>& runs) {
  const auto step =
      spread_of(each_run(runs, [](const auto& run) { return decode_step_ms(run.requests); }));
  const auto ttft = each_request(runs, [](const auto& times) { return times.first_token * 1e3; });
  const auto rate = spread_of(each_run(runs, [](const auto& run) { return run.output_rate(); }));
  if (flags.format == "json") {
    Json::Object row = set_up(stack);
    row.insert(row.end(), {{"batch", batch},
                           {"prompt", flags.input},
                           {"output", flags.output},
                           {"step_ms", to_json(step)},
                           {"ttft_ms_p50", median(ttft)},
                           {"output_tokens_per_s", to_json(rate)}});
    for (auto& field : step_timing(stack, runs.back())) row.push_back(std::move(field));
    fmt::print("{}\n", write_json(Json(std::move(row))));
  } else {
    fmt::print("batch {:<5} step {:.3f} ms ({:.3f} to {:.3f})   TTFT {:.1f} ms   {:.1f} tok/s\n",
               batch, step.middle, step.low, step.high, median(ttft), rate.middle);
    fmt::print("{}", step_timing_text(stack, runs.back()));
  }
  std::fflush(stdout);
}

// Tokens of a traced answer: enough for kTracedSteps in the middle of a batch that starts and ends
// over some steps.
constexpr int32_t kTracedTokens = 48;

Result<StepTrace> trace_step(ModelStack& stack, KernelTrace& trace, int64_t batch,
                             const WorkloadFlags& flags) {
  const std::vector<WorkItem> items(static_cast<size_t>(batch), {flags.input, kTracedTokens});
  HR_RETURN_IF_ERROR(trace.take().status());
  HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(stack, items, /*seed=*/1));
  HR_ASSIGN_OR_RETURN(const std::vector<KernelRun> runs, trace.take());
  return trace_of_step(runs, static_cast<int32_t>(result.steps), stack.config().layers);
}

void print_trace(const StepTrace& trace, int64_t batch, const std::string& format) {
  if (format == "json") {
    fmt::print("{}\n", write_json(Json(Json::Object{{"batch", batch}, {"trace", to_json(trace)}})));
  } else {
    fmt::print("{}", to_text(trace));
  }
  std::fflush(stdout);
}

Result<int> run_latency(WorkloadFlags& flags) {
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  StackOptions& options = flags.model.stack;
  fit_adapters(options.adapters);
  std::unique_ptr<KernelTrace> trace;  // before the first graph is made
  if (flags.trace) {
    HR_ASSIGN_OR_RETURN(trace, KernelTrace::start());
    if (options.memory.max_model_len == 0) {
      options.memory.max_model_len = flags.input + std::max(flags.output, kTracedTokens);
    }
  }
  options.batch.max_num_seqs =
      static_cast<int32_t>(*std::max_element(flags.batches.begin(), flags.batches.end()));
  if (options.memory.max_model_len == 0) options.memory.max_model_len = flags.input + flags.output;
  HR_ASSIGN_OR_RETURN(const auto stack, load_with_progress(options));
  for (const int64_t batch : flags.batches) {
    const std::vector<WorkItem> items(static_cast<size_t>(batch), {flags.input, flags.output});
    HR_ASSIGN_OR_RETURN(const auto runs, run_all(*stack, items, flags));
    print_latency(*stack, static_cast<int32_t>(batch), flags, runs);
    if (trace == nullptr) continue;
    HR_ASSIGN_OR_RETURN(const StepTrace step, trace_step(*stack, *trace, batch, flags));
    print_trace(step, batch, flags.format);
  }
  return 0;
}

}  // namespace

SubcommandRun define_bench_throughput(CLI::App& app) {
  auto flags = std::make_shared<WorkloadFlags>();
  app.add_option("--requests", flags->requests, "Lengths from a file instead of all alike")
      ->type_name("FILE")
      ->group("Work");
  add_length(app, "--num-prompts", flags->prompts, kRequestsMax, "How many requests");
  add_shared_flags(app, *flags);
  app.footer(kThroughputFooter);
  return [flags] { return run_throughput(*flags); };
}

SubcommandRun define_bench_latency(CLI::App& app) {
  auto flags = std::make_shared<WorkloadFlags>();
  const auto read = [flags = flags.get()](const std::vector<std::string>& texts) {
    flags->batches.clear();
    for (const std::string& text : texts) {
      const auto list = parse_size_list(text);
      if (!list.ok()) throw CLI::ValidationError(list.status().message());
      for (const int64_t value : *list) {
        if (value < 1 || value > kRequestsMax) {
          throw CLI::ValidationError(fmt::format("{} is not within 1 and {}", value, kRequestsMax));
        }
        flags->batches.push_back(value);
      }
    }
  };
  app.add_option_function<std::vector<std::string>>("--batch-size", read,
                                                    "Sequences together (default 1)")
      ->allow_extra_args(false)
      ->type_name("N,...")
      ->group("Work");
  app.add_flag("--trace", flags->trace,
               "GPU: also launches and time of a decode step by kernel, from runs of their own; "
               "timed runs are a little slower meanwhile")
      ->group("Work");
  add_shared_flags(app, *flags);
  app.footer(kLatencyFooter);
  return [flags] { return run_latency(*flags); };
}

}  // namespace headrace
