#include "bench/bench_ceilings_command.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "bench/bench_ceilings_device.h"
#include "bench/bench_ceilings_group.h"
#include "bench/machine_ceilings.h"
#include "cli/command_line.h"
#include "tensor/device.h"

namespace headrace {
namespace {

constexpr const char* kBenchCeilingsFooter = R"(Examples:
  headrace bench ceilings
  headrace bench ceilings -t 2 --sizes 64M,512M -o json
  headrace bench ceilings --device cuda -o json

Reading: all threads together read a buffer of each size again and again. Arithmetic: all threads
multiply and add in registers. On a GPU: reading and copying its memory, the link to the host, the vendor
library's matrix products of an 8B layer and head by rows, and, where there are several, the sum over all
of them, by NCCL and by kernels of our own. Medians of the repetitions.)";

struct CeilingFlags {
  int threads = 0;
  std::vector<int64_t> sizes{int64_t{1} << 20, int64_t{16} << 20, int64_t{96} << 20,
                             int64_t{512} << 20};
  int repetitions = 5;
  std::string device = "cpu";
  std::string format = "text";
};

class CeilingRun {
 public:
  explicit CeilingRun(const CeilingFlags& flags)
      : flags_(flags), device_(create_cpu_device(flags.threads)) {}

  Result<int> run() {
    if (flags_.device == "cuda") return run_on_gpu();
    print_machine();
    for (const int64_t size : flags_.sizes) HR_RETURN_IF_ERROR(read(size));
    for (const ArithmeticCeiling& ceiling : arithmetic_ceilings()) {
      if (ceiling.supports(device_->traits().cpu)) multiply(ceiling);
    }
    return 0;
  }

 private:
  Result<int> run_on_gpu() {
    HR_ASSIGN_OR_RETURN(const auto gpu, create_cuda_device(0, flags_.threads));
    if (!json()) fmt::print("{}\n", gpu->traits().name);
    const auto print = [&](const CeilingRow& row) {
      print_row(row.name, row.of, row.value, row.unit);
    };
    HR_RETURN_IF_ERROR(measure_device_ceilings(*gpu, flags_.repetitions, print));
    HR_RETURN_IF_ERROR(measure_group_ceilings(*gpu, flags_.repetitions, print));
    return 0;
  }

  int threads() const { return device_->pool().thread_count(); }
  bool json() const { return flags_.format == "json"; }

  Status read(int64_t size) {
    HR_ASSIGN_OR_RETURN(const double rate, read_rate(*device_, size, flags_.repetitions));
    print_row("read", fmt::format("{} MiB", size >> 20), rate * 1e-9, "GB/s");
    return ok_status();
  }

  void multiply(const ArithmeticCeiling& ceiling) {
    const double rate = multiply_rate(*device_, ceiling, flags_.repetitions);
    print_row(std::string(ceiling.name), std::string(ceiling.type), rate * 1e-9, "GOP/s");
  }

  void print_machine() {
    if (json()) return;
    fmt::print("{} threads, {}\n", threads(), device_->traits().cpu.to_string());
  }

  void print_row(const std::string& name, const std::string& what, double value,
                 const std::string& unit) {
    if (json()) {
      fmt::print("{}\n", write_json(Json(Json::Object{{"ceiling", name},
                                                      {"of", what},
                                                      {"value", value},
                                                      {"unit", unit},
                                                      {"threads", threads()}})));
    } else {
      const int digits = value < 10 ? 4 : 1;
      fmt::print("{:<14} {:>9} {:>10.{}f} {}\n", name, what, value, digits, unit);
    }
    std::fflush(stdout);
  }

  const CeilingFlags& flags_;
  const std::unique_ptr<Device> device_;
};

}  // namespace

SubcommandRun define_bench_ceilings(CLI::App& app) {
  auto flags = std::make_shared<CeilingFlags>();
  app.add_option("-t,--threads", flags->threads, "CPU threads (default: every CPU)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->group("Work");
  app.add_option_function<std::string>(
         "--sizes",
         [flags = flags.get()](const std::string& text) {
           const auto list = parse_size_list(text);
           if (!list.ok()) throw CLI::ValidationError(list.status().message());
           flags->sizes = *list;
         },
         "Bytes of the buffers that are read (default 1M,16M,96M,512M)")
      ->type_name("N,...")
      ->group("Work");
  app.add_option("-r,--repetitions", flags->repetitions, "Timed runs of each")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->group("Work");
  add_choice(app, "--device", flags->device, {"cpu", "cuda"}, "What is measured")->group("Work");
  add_choice(app, "-o,--output", flags->format, {"text", "json"}, "Output format")->group("Work");
  app.footer(kBenchCeilingsFooter);
  return [flags] { return CeilingRun(*flags).run(); };
}

}  // namespace headrace
