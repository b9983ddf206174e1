#include "apps/recommend_command.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/recommend.h"
#include "bench/machine_ceilings.h"
#include "cli/command_line.h"
#include "hub/model_pull.h"
#include "stack/model_names.h"
#include "tensor/free_memory.h"

namespace headrace {
namespace {

constexpr const char* kRecommendFooter = R"(Examples:
  headrace recommend
  headrace recommend Qwen/Qwen3-8B-GGUF:Q4_K_M Qwen/Qwen3-4B
  headrace recommend --json | jq -r .best)";

constexpr int64_t kMeasuredBytes = int64_t{256} << 20;  // more than caches hold
constexpr int kMeasurements = 3;

struct RecommendFlags {
  std::vector<std::string> names;
  bool json = false;
};

Result<MachineRates> measure_machine() {
  MachineRates machine;
  machine.free_bytes = free_memory_bytes().value_or(0);
  const auto device = create_cpu_device(0);
  HR_ASSIGN_OR_RETURN(machine.bytes_per_second, read_rate(*device, kMeasuredBytes, kMeasurements));
  return machine;
}

// Of a file or of what its hub says: nothing is fetched.
Result<int64_t> bytes_of_model(const std::string& text) {
  HR_ASSIGN_OR_RETURN(const ModelName name, ModelName::read(text));
  if (name.kind() == NameKind::kPath) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(text, error);
    if (!error) return static_cast<int64_t>(bytes);
    return not_found(fmt::format("{}: {}", text, error.message()));
  }
  PullOptions options;
  options.stopped = [] { return false; };
  // What does not fit is told, not refused.
  options.memory_bytes = std::numeric_limits<int64_t>::max();
  HR_ASSIGN_OR_RETURN(const ModelPull pull, ModelPull::plan(name, options));
  return pull.bytes();
}

Result<int> recommend(const RecommendFlags& flags) {
  std::vector<Recommendation> models;
  HR_ASSIGN_OR_RETURN(const MachineRates machine, measure_machine());
  for (const std::string& name : flags.names) {
    HR_ASSIGN_OR_RETURN(const int64_t bytes, bytes_of_model(name));
    models.emplace_back(name, bytes, 1.0, machine);
  }
  if (flags.names.empty()) {
    for (const KnownModel& known : known_models()) {
      models.emplace_back(std::string(known.name), static_cast<int64_t>(known.gigabytes * 1e9),
                          known.active_share, machine);
    }
  }
  fmt::print("{}", flags.json ? write_json(recommendations_json(models, machine)) + "\n"
                              : recommendations_text(models, machine));
  return best_of(models) == nullptr ? 1 : 0;
}

}  // namespace

SubcommandRun define_recommend(CLI::App& app) {
  auto flags = std::make_shared<RecommendFlags>();
  app.add_option("NAME", flags->names,
                 "Files, or names as of 'headrace pull' (default: a list of well-known models)")
      ->group("Flags");
  app.add_flag("--json", flags->json, "As an object")->group("Flags");
  app.footer(kRecommendFooter);
  return [flags] { return recommend(*flags); };
}

}  // namespace headrace
