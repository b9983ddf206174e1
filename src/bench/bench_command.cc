#include "bench/bench_command.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/bench_measure.h"
#include "bench/bench_report.h"
#include "cli/load_progress.h"
#include "cli/model_flags.h"
#include "stack/default_model.h"
#include "terminal/progress.h"

namespace headrace {
namespace {

constexpr const char* kBenchFooter = R"(Examples:
  headrace bench -m model.gguf -p 512 -n 128 -r 5 -t 2
  headrace bench -m model.gguf -p 128,512 -n 0 -t 1,2 -o json
  headrace bench -m model.gguf -p 0 -n 0 --streams 1,2,4,8)";

// Length of prompt and answer of each of --streams, as llama-batched-bench is often run.
constexpr int32_t kStreamPrompt = 128;
constexpr int32_t kStreamGenerate = 128;
constexpr int64_t kTokensMax = 1 << 24;

struct BenchFlags {
  ModelFlags model;
  std::vector<std::string> models;
  std::vector<int64_t> prompts{512}, generates{128}, threads{0}, streams, batch_tokens{0};
  std::vector<std::string> pairs;  // -pg
  BenchPlan plan;
  bool no_warm_up = false;
  std::string output = "md";
};

// A flag that takes "1,2,4" and may be given several times; the first use drops the default.
void add_list(CLI::App& app, const std::string& names, std::vector<int64_t>& values,
              const std::string& description, int64_t high = kTokensMax) {
  const auto read = [&values, high](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : texts) {
      const auto list = parse_size_list(text);
      if (!list.ok()) throw CLI::ValidationError(list.status().message());
      for (int64_t value : *list) {
        if (value > high) throw CLI::ValidationError(fmt::format("{} is over {}", value, high));
        values.push_back(value);
      }
    }
  };
  app.add_option_function<std::vector<std::string>>(names, read, description)
      ->allow_extra_args(false)
      ->type_name("N,...")
      ->group("Tests");
}

void add_bench_flags(CLI::App& app, BenchFlags& flags) {
  app.add_option("-m,--model", flags.models, "Model files (default: as for run); repeatable")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FILE")
      ->group("Tests");
  add_list(app, "-p,--n-prompt", flags.prompts, "Prompt lengths to time; 0: none (default 512)");
  add_list(app, "-n,--n-gen", flags.generates, "Answer lengths to time; 0: none (default 128)");
  app.add_option("--pg", flags.pairs, "-pg P,G: also P tokens of prompt, then G (repeatable)")
      ->allow_extra_args(false)
      ->type_name("P,G")
      ->group("Tests");
  add_list(app, "--streams", flags.streams,
           "Also N answers at a time, 128 tokens of prompt and 128 of answer each", 1 << 12);
  add_list(app, "-t,--threads", flags.threads, "CPU threads (default: every CPU)", 1024);
  add_list(app, "-u,--ubatch-size,--ub,--max-num-batched-tokens", flags.batch_tokens,
           "Most tokens in one step (default, 0: what run and serve take)", 1 << 20);
  app.add_option("-r,--repetitions", flags.plan.repetitions, "Timed runs of each test")
      ->check(CLI::Range(1, 100000))
      ->type_name("N")
      ->group("Tests");
  app.add_flag("--no-warmup", flags.no_warm_up, "No run before those that are timed")
      ->group("Tests");
  add_choice(app, "-o,--output", flags.output, {"md", "json", "jsonl", "csv"}, "Output format")
      ->group("Tests");
  add_compute_flags(app, flags.model);
  app.footer(kBenchFooter);
}

BenchFormat bench_format(const std::string& name) {
  if (name == "json") return BenchFormat::kJson;
  if (name == "jsonl") return BenchFormat::kJsonLines;
  return name == "csv" ? BenchFormat::kCsv : BenchFormat::kMarkdown;
}

Result<std::vector<BenchTest>> bench_tests(const BenchFlags& flags) {
  std::vector<BenchTest> tests;
  for (int64_t prompt : flags.prompts) {
    if (prompt > 0) tests.push_back({.prompt = static_cast<int32_t>(prompt)});
  }
  for (int64_t generate : flags.generates) {
    if (generate > 0) tests.push_back({.generate = static_cast<int32_t>(generate)});
  }
  for (const std::string& pair : flags.pairs) {
    HR_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, parse_size_list(pair));
    if (lengths.size() != 2 || lengths[0] > kTokensMax || lengths[1] > kTokensMax) {
      return invalid_argument(fmt::format("-pg {}: expected two lengths, as 512,128", pair));
    }
    tests.push_back(
        {.prompt = static_cast<int32_t>(lengths[0]), .generate = static_cast<int32_t>(lengths[1])});
  }
  for (int64_t streams : flags.streams) {
    tests.push_back({.generate = kStreamGenerate,
                     .depth = kStreamPrompt,
                     .streams = static_cast<int32_t>(std::max<int64_t>(streams, 1))});
  }
  if (tests.empty()) return invalid_argument("there is nothing to measure: -p, -n and -pg are 0");
  return tests;
}

// An engine that holds the largest of the tests.
StackOptions stack_for(const BenchFlags& flags, const std::vector<BenchTest>& tests) {
  StackOptions stack = flags.model.stack;
  stack.batch.max_num_seqs = 1;
  stack.runner.graphs_at_start = true;
  stack.engine.scheduler.enable_prefix_caching = false;  // every prompt is computed
  for (const BenchTest& test : tests) {
    stack.batch.max_num_seqs = std::max(stack.batch.max_num_seqs, test.streams);
    stack.memory.max_model_len = std::max(stack.memory.max_model_len, test.context());
  }
  return stack;
}

void print(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

Result<BenchResult> measure_with_progress(ModelStack& stack, const BenchTest& test,
                                          BenchPlan plan) {
  Progress progress(test.name());
  plan.on_run = [&progress](int32_t done, int32_t runs) { progress.update(done, runs); };
  return measure(stack, test, plan);
}

Status run_setup(const StackOptions& options, const std::vector<BenchTest>& tests,
                 const BenchPlan& plan, BenchReport& report) {
  HR_ASSIGN_OR_RETURN(const auto stack, load_with_progress(options));
  BenchSetup setup = bench_setup(*stack);
  setup.batch_tokens = stack->engine().options().scheduler.max_num_batched_tokens;
  setup.kv_type = options.load.dtype == DType::kF32 ? "f32" : "f16";
  for (const BenchTest& test : tests) {
    HR_ASSIGN_OR_RETURN(const BenchResult result, measure_with_progress(*stack, test, plan));
    print(report.row(setup, result));
  }
  return ok_status();
}

Result<int> run(BenchFlags& flags) {
  if (!flags.models.empty()) flags.model.stack.model = flags.models.front();
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  if (flags.models.empty()) flags.models.push_back(flags.model.stack.model);
  flags.plan.warm_up = !flags.no_warm_up;
  HR_ASSIGN_OR_RETURN(const std::vector<BenchTest> tests, bench_tests(flags));
  BenchReport report(bench_format(flags.output));
  StackOptions options = stack_for(flags, tests);
  print(report.begin());
  for (const std::string& model : flags.models) {
    for (int64_t threads : flags.threads) {
      for (int64_t batch_tokens : flags.batch_tokens) {
        options.model = model;
        options.device.threads = static_cast<int32_t>(threads);
        options.batch.max_num_batched_tokens = static_cast<int32_t>(batch_tokens);
        HR_RETURN_IF_ERROR(run_setup(options, tests, flags.plan, report));
      }
    }
  }
  print(report.end());
  return 0;
}

}  // namespace

SubcommandRun define_bench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  add_bench_flags(app, *flags);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
