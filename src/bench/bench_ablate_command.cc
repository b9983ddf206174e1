#include "bench/bench_ablate_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "bench/ablation.h"
#include "cli/engine_flags.h"
#include "cli/load_progress.h"
#include "cli/model_flags.h"

namespace headrace {
namespace {

constexpr const char* kBenchAblateFooter = R"(Examples:
  headrace bench ablate K1 -m model.gguf
  headrace bench ablate all -o json

Rows K1 to K5 switch kernels, C2 to C7 memory, S1 to S8 scheduling, D4 ranks, X1 speculation
(docs/techniques.md).
On and off take turns, and a gain above 1 is the technique's. "simulated": the real scheduler in
virtual time, with the step cost of an H200 and an 8B model.)";

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
  explicit AblateRun(const AblateFlags& flags) : flags_(flags), bench_(flags.model.stack) {}

  Result<int> run() {
    HR_ASSIGN_OR_RETURN(const std::vector<const Ablation*> rows, chosen_rows(flags_.row));
    for (const Ablation* row : rows) {
      print_row(*row);
      for (const AblationCase& work : row->cases()) HR_RETURN_IF_ERROR(run_case(*row, work));
      bench_.drop_engines();
    }
    return 0;
  }

 private:
  // What a side came to, round by round.
  using Values = std::vector<double>;

  bool json() const { return flags_.format == "json"; }

  Status run_case(const Ablation& row, const AblationCase& work) {
    Values on, off;
    for (int32_t round = work.simulated ? 0 : -1; round < flags_.rounds; ++round) {
      bench_.set_round(round);
      const bool on_first = round % 2 == 0;
      for (const bool is_on : {on_first, !on_first}) {
        Result<double> value = is_on ? work.on(bench_) : work.off(bench_);
        if (!value.ok() && value.status().code() == StatusCode::kUnsupported) {
          print_skipped(work, value.status());
          return ok_status();
        }
        HR_RETURN_IF_ERROR(value.status());
        if (round >= 0) (is_on ? on : off).push_back(*value);
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

  // How much better on was, round by round, the least first.
  static Values gains(const AblationCase& work, const Values& on, const Values& off) {
    Values gains;
    for (size_t i = 0; i < on.size(); ++i) {
      gains.push_back(work.unit.more_is_better ? on[i] / off[i] : off[i] / on[i]);
    }
    std::sort(gains.begin(), gains.end());
    return gains;
  }

  void print_case(const Ablation& row, const AblationCase& work, const Values& on,
                  const Values& off) const {
    const double on_value = percentile(on, 0.5) * work.unit.scale;
    const double off_value = percentile(off, 0.5) * work.unit.scale;
    const Values gain = gains(work, on, off);
    if (json()) {
      fmt::print("{}\n", write_json(Json(Json::Object{{"ablate", std::string(row.id)},
                                                      {"case", work.name},
                                                      {"what", work.what},
                                                      {"simulated", work.simulated},
                                                      {"unit", std::string(work.unit.name)},
                                                      {"on", on_value},
                                                      {"off", off_value},
                                                      {"gain", percentile(gain, 0.5)},
                                                      {"gain_min", gain.front()},
                                                      {"gain_max", gain.back()},
                                                      {"rounds", flags_.rounds}})));
    } else {
      fmt::print(
          "    {:<26} {:<20} on {:9.3f}   off {:9.3f} {:<9} gain {:.2f} x ({:.2f} to {:.2f}){}\n",
          work.name, work.what, on_value, off_value, work.unit.name, percentile(gain, 0.5),
          gain.front(), gain.back(), work.simulated ? ", simulated" : "");
    }
    std::fflush(stdout);
  }

  const AblateFlags& flags_;
  AblationBench bench_;
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
  add_speculation_flags(app, flags->model);
  app.footer(kBenchAblateFooter);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
