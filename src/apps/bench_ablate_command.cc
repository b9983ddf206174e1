#include "apps/bench_ablate_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/ablation.h"
#include "apps/model_flags.h"
#include "apps/progress_line.h"
#include "base/json.h"

namespace headrace {
namespace {

constexpr const char* kFooter = R"(Examples:
  headrace bench ablate K1 -m model.gguf
  headrace bench ablate all -o json

Rows: K1 FlashAttention, K2 Flash-Decoding, K3 flat products, K4 fusion, K5 no padding. Times are
medians; on and off take turns. A gain above 1 is the technique's.)";

struct AblateFlags {
  ModelFlags model;
  std::string row;
  int32_t rounds = 5;
  std::string format = "text";
};

std::string known_ids() {
  std::string ids;
  for (const Ablation& ablation : ablations()) ids += fmt::format("{}, ", ablation.id);
  return ids + "all";
}

Result<std::vector<const Ablation*>> chosen_rows(const std::string& row) {
  std::vector<const Ablation*> rows;
  for (const Ablation& ablation : ablations()) {
    if (row == "all" || row == ablation.id) rows.push_back(&ablation);
  }
  if (rows.empty()) {
    return invalid_argument(fmt::format("no row '{}': rows are {}", row, known_ids()));
  }
  return rows;
}

class AblateRun {
 public:
  explicit AblateRun(const AblateFlags& flags) : flags_(flags) { hooks_.probe = &profile_; }

  Result<int> run() {
    HR_ASSIGN_OR_RETURN(const std::vector<const Ablation*> rows, chosen_rows(flags_.row));
    HR_ASSIGN_OR_RETURN(const auto stack, load_with_progress(stack_options()));
    if (stack->info().on_gpu) {
      return unsupported("bench ablate runs on the CPU only so far: add --device cpu");
    }
    AblationBench bench(*stack, hooks_, profile_);
    for (const Ablation* row : rows) {
      print_row(*row);
      for (const AblationCase& work : row->cases()) HR_RETURN_IF_ERROR(run_case(bench, *row, work));
    }
    return 0;
  }

 private:
  bool json() const { return flags_.format == "json"; }

  StackOptions stack_options() const {
    StackOptions options = flags_.model.stack;
    options.max_num_seqs = kAblationSequences;
    options.max_model_len = std::max(options.max_model_len, kAblationModelLen);
    options.enable_prefix_caching = false;
    options.graphs = false;
    options.op_hooks = &hooks_;
    return options;
  }

  Status run_case(AblationBench& bench, const Ablation& row, const AblationCase& work) {
    std::vector<double> on, off;
    for (int32_t round = -1; round < flags_.rounds; ++round) {
      const bool on_first = round % 2 == 0;
      for (const bool is_on : {on_first, !on_first}) {
        Result<double> seconds = is_on ? work.on(bench) : work.off(bench);
        if (!seconds.ok() && seconds.status().code() == StatusCode::kUnsupported) {
          print_skipped(work, seconds.status());
          return ok_status();
        }
        HR_RETURN_IF_ERROR(seconds.status());
        if (round >= 0) (is_on ? on : off).push_back(*seconds);
      }
    }
    print_case(row, work, on, off);
    return ok_status();
  }

  void print_row(const Ablation& row) const {
    if (json()) return;
    fmt::print("{}  {}\n    off: {}\n", row.id, row.technique, row.off);
    std::fflush(stdout);
  }

  void print_skipped(const AblationCase& work, const Status& why) const {
    if (json()) return;
    fmt::print("    {:<26} {:<20} {}\n", work.name, work.what, why.message());
  }

  void print_case(const Ablation& row, const AblationCase& work, const std::vector<double>& on,
                  const std::vector<double>& off) const {
    const double on_ms = percentile(on, 0.5) * 1e3, off_ms = percentile(off, 0.5) * 1e3;
    if (json()) {
      fmt::print("{}\n", write_json(Json(Json::Object{{"ablate", std::string(row.id)},
                                                      {"case", work.name},
                                                      {"what", work.what},
                                                      {"on_ms", on_ms},
                                                      {"off_ms", off_ms},
                                                      {"gain", off_ms / on_ms},
                                                      {"rounds", flags_.rounds}})));
    } else {
      fmt::print("    {:<26} {:<20} on {:9.3f} ms   off {:9.3f} ms   gain {:.2f} x\n", work.name,
                 work.what, on_ms, off_ms, off_ms / on_ms);
    }
    std::fflush(stdout);
  }

  const AblateFlags& flags_;
  OpProfile profile_;
  OpHooks hooks_;
};

Result<int> run(AblateFlags& flags) {
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  return AblateRun(flags).run();
}

}  // namespace

SubcommandRun define_bench_ablate(CLI::App& app) {
  auto flags = std::make_shared<AblateFlags>();
  app.add_option("row", flags->row, "Which technique: " + known_ids())
      ->required()
      ->type_name("ROW");
  app.add_option("-r,--rounds", flags->rounds, "Timed runs of each case, on and off")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->group("Work");
  add_choice(app, "-o,--output", flags->format, {"text", "json"}, "Output format")->group("Work");
  add_model_flags(app, flags->model);
  app.footer(kFooter);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
