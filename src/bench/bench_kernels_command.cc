#include "bench/bench_kernels_command.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "bench/bench_measure.h"
#include "bench/machine_ceilings.h"
#include "bench/op_profile.h"
#include "cli/load_progress.h"
#include "cli/model_flags.h"

namespace headrace {
namespace {

constexpr const char* kBenchKernelsFooter = R"(Examples:
  headrace bench kernels -m model.gguf
  headrace bench kernels -m model.gguf -p 512 -n 0 -o json
  headrace bench kernels -m model.gguf -p 0 -n 64 --depth 1024 --streams 8

Each line is a kernel at one shape: what it must read, write, multiply and add, its mean time, and
the larger of its shares of the read bandwidth (of a buffer of its size, at most of the weights') and
of the arithmetic of its type, both measured before. A VNNI product counts as int8 whatever the
activations.)";

constexpr int kCeilingRepetitions = 3;

struct KernelFlags {
  ModelFlags model;
  int32_t prompt = 512, generate = 32, depth = 0, streams = 1;
  int32_t lines = 40;
  std::string format = "text";
};

// Rates of the machine, each measured when it is first asked for.
class Ceilings {
 public:
  explicit Ceilings(Device& device) : device_(device) {}

  // Bytes a second from buffers of about that size: the next power of two.
  Result<double> read(int64_t bytes) {
    int64_t size = 1 << 20;
    while (size < bytes) size *= 2;
    if (const auto known = read_.find(size); known != read_.end()) return known->second;
    HR_ASSIGN_OR_RETURN(const double rate, read_rate(device_, size, kCeilingRepetitions));
    return read_.emplace(size, rate).first->second;
  }
  // 0 where the CPU has nothing of the kind.
  double multiply(std::string_view type) {
    if (const auto known = multiply_.find(std::string(type)); known != multiply_.end()) {
      return known->second;
    }
    const ArithmeticCeiling* const ceiling = ceiling_for(device_, type);
    const double rate =
        ceiling == nullptr ? 0 : multiply_rate(device_, *ceiling, kCeilingRepetitions);
    return multiply_.emplace(type, rate).first->second;
  }
  const std::map<int64_t, double>& all_read() const { return read_; }
  const std::map<std::string, double, std::less<>>& all_multiply() const { return multiply_; }

 private:
  Device& device_;
  std::map<int64_t, double> read_;
  std::map<std::string, double, std::less<>> multiply_;
};

class KernelsRun {
 public:
  explicit KernelsRun(const KernelFlags& flags)
      : flags_(flags),
        device_(create_cpu_device(flags.model.stack.device.threads)),
        ceilings_(*device_) {}

  Result<int> run() {
    const std::vector<BenchTest> tests = wanted_tests();
    if (tests.empty()) return invalid_argument("there is nothing to measure: -p and -n are 0");
    hooks_.probe = &profile_;
    hooks_.preferred = flags_.model.stack.prefer_kernels;
    HR_ASSIGN_OR_RETURN(const auto stack, load_with_progress(stack_options(tests)));
    if (stack->info().on_gpu) {
      return unsupported("bench kernels has no ceilings of a GPU yet: use --device cpu");
    }
    weight_bytes_ = stack->info().weight_bytes;
    for (const BenchTest& test : tests) HR_RETURN_IF_ERROR(run_test(*stack, test));
    print_ceilings();
    return 0;
  }

 private:
  bool json() const { return flags_.format == "json"; }

  std::vector<BenchTest> wanted_tests() const {
    std::vector<BenchTest> tests;
    if (flags_.prompt > 0) tests.push_back({.prompt = flags_.prompt});
    if (flags_.generate > 0) {
      tests.push_back({.generate = flags_.generate,
                       .depth = std::max(flags_.depth, 1),
                       .streams = flags_.streams});
    }
    return tests;
  }

  StackOptions stack_options(const std::vector<BenchTest>& tests) const {
    StackOptions options = flags_.model.stack;
    options.batch.max_num_seqs = flags_.streams;
    options.engine.scheduler.enable_prefix_caching = false;
    options.runner.graphs = false;
    options.runner.hooks = &hooks_;
    for (const BenchTest& test : tests) {
      options.memory.max_model_len = std::max(options.memory.max_model_len, test.context());
    }
    return options;
  }

  // The prompts of a decode test are computed too, but not shown.
  bool shown(const BenchTest& test, const OpTotal& total) const {
    return test.streams == 0 || total.cost.rows <= test.streams;
  }

  Status run_test(ModelStack& stack, const BenchTest& test) {
    HR_RETURN_IF_ERROR(measure(stack, test, {.repetitions = 1, .warm_up = false}).status());
    profile_.take();  // that was the warm-up
    HR_ASSIGN_OR_RETURN(const BenchResult result,
                        measure(stack, test, {.repetitions = 1, .warm_up = false}));
    std::vector<OpTotal> totals = profile_.take();
    std::erase_if(totals, [&](const OpTotal& total) { return !shown(test, total); });
    int64_t in_ops = 0;
    for (const OpTotal& total : totals) in_ops += total.nanoseconds;
    const auto wall = static_cast<double>(result.samples_ns.front());
    print_title(test, wall, in_ops);
    for (size_t i = 0; i < totals.size() && i < static_cast<size_t>(flags_.lines); ++i) {
      HR_RETURN_IF_ERROR(print_line(test, totals[i], static_cast<double>(in_ops)));
    }
    return ok_status();
  }

  void print_title(const BenchTest& test, double wall, int64_t in_ops) const {
    if (json()) return;
    fmt::print("{}: {:.2f} ms, {:.1f} % of it in ops\n", test.name(), wall * 1e-6,
               100.0 * static_cast<double>(in_ops) / wall);
    fmt::print("{:<28} {:<30} {:>5} {:>6} {:>7} {:>9} {:>8} {:>9} {:>12}\n", "kernel", "shape",
               "rows", "calls", "time %", "us a call", "GB/s", "GFLOP/s", "of ceiling");
  }

  Status print_line(const BenchTest& test, const OpTotal& total, double in_ops) {
    const double ns = static_cast<double>(total.nanoseconds) / static_cast<double>(total.calls);
    const double bandwidth = static_cast<double>(total.cost.bytes) / ns;  // GB/s
    const double arithmetic = static_cast<double>(total.cost.flops) / ns;
    // Weights of one op were evicted by those of all others: what it reads comes from where a
    // buffer of all of them would.
    const bool weights = total.kernel.starts_with("linear/");
    HR_ASSIGN_OR_RETURN(const double read,
                        ceilings_.read(weights ? weight_bytes_ : total.cost.bytes));
    const double read_share = bandwidth * 1e9 / read;
    const double peak = total.cost.flops > 0 ? ceilings_.multiply(total.cost.type) : 0;
    const double multiply_share = peak > 0 ? arithmetic * 1e9 / peak : 0;
    const bool by_reading = read_share >= multiply_share;
    const double share = std::max(read_share, multiply_share);
    const double time = static_cast<double>(total.nanoseconds) / in_ops;
    if (json()) {
      fmt::print("{}\n", write_json(Json(Json::Object{
                             {"bench", "kernels"},
                             {"test", test.name()},
                             {"kernel", total.kernel},
                             {"shape", total.cost.shape},
                             {"rows", total.cost.rows},
                             {"calls", total.calls},
                             {"time_share", time},
                             {"us_per_call", ns * 1e-3},
                             {"bytes", total.cost.bytes},
                             {"flops", total.cost.flops},
                             {"gb_per_s", bandwidth},
                             {"gflop_per_s", arithmetic},
                             {"ceiling", by_reading ? "read" : std::string(total.cost.type)},
                             {"share_of_ceiling", share}})));
    } else {
      fmt::print("{:<28} {:<30} {:>5} {:>6} {:>7.1f} {:>9.1f} {:>8.1f} {:>9.1f} {:>5.0f} % {}\n",
                 total.kernel, total.cost.shape, total.cost.rows, total.calls, 100 * time,
                 ns * 1e-3, bandwidth, arithmetic, 100 * share,
                 by_reading ? "read" : total.cost.type);
    }
    return ok_status();
  }

  void print_ceilings() const {
    if (json()) return;
    fmt::print("ceilings:");
    for (const auto& [size, rate] : ceilings_.all_read()) {
      fmt::print(" read {} MiB {:.0f} GB/s,", size >> 20, rate * 1e-9);
    }
    for (const auto& [type, rate] : ceilings_.all_multiply()) {
      fmt::print(" {} {:.0f} GOP/s,", type, rate * 1e-9);
    }
    fmt::print(" {} threads\n", device_->pool().thread_count());
  }

  const KernelFlags& flags_;
  OpProfile profile_;
  OpHooks hooks_;
  const std::unique_ptr<Device> device_;  // its threads sleep while the model's compute
  Ceilings ceilings_;
  int64_t weight_bytes_ = 0;
};

Result<int> run(KernelFlags& flags) {
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  return KernelsRun(flags).run();
}

void add_count(CLI::App& app, const std::string& names, int32_t& value, int32_t low,
               const std::string& description) {
  app.add_option(names, value, description)
      ->check(CLI::Range(low, 1 << 24))
      ->type_name("N")
      ->group("Work");
}

}  // namespace

SubcommandRun define_bench_kernels(CLI::App& app) {
  auto flags = std::make_shared<KernelFlags>();
  add_count(app, "-p,--n-prompt", flags->prompt, 0, "Tokens of a prompt; 0: none");
  add_count(app, "-n,--n-gen", flags->generate, 0, "Decode steps; 0: none");
  add_count(app, "--depth", flags->depth, 0, "Tokens before the first decode step");
  add_count(app, "--streams", flags->streams, 1, "Answers decoded together");
  add_count(app, "--lines", flags->lines, 1, "Most lines of a test, the longest first");
  add_choice(app, "-o,--output", flags->format, {"text", "json"}, "Output format")->group("Work");
  add_model_flags(app, flags->model);
  app.footer(kBenchKernelsFooter);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
