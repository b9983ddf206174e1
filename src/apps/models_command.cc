#include "apps/models_command.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/inspect.h"
#include "apps/model_download.h"
#include "base/json.h"
#include "cli/command_line.h"
#include "hub/file_choice.h"
#include "hub/hub_api.h"
#include "hub/local_models.h"
#include "stack/model_names.h"
#include "terminal/safe_text.h"

namespace headrace {
namespace {

constexpr const char* kPullFooter = R"(Examples:
  headrace pull HuggingFaceTB/SmolLM2-135M-Instruct
  headrace pull bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M
  headrace pull Qwen/Qwen3-0.6B@main
  headrace pull llama3.2:1b
  headrace pull https://example.com/model.gguf)";
constexpr const char* kListFooter = R"(Examples:
  headrace list
  headrace list --json)";
constexpr const char* kShowFooter = R"(Examples:
  headrace show Qwen/Qwen3-0.6B
  headrace show llama3.2:1b)";
constexpr const char* kRmFooter = R"(Examples:
  headrace rm llama3.2:1b
  headrace rm maker/model-GGUF:Q8_0)";
constexpr const char* kSearchFooter = R"(Examples:
  headrace search smollm2
  headrace search qwen3 gguf --limit 5)";

constexpr int kConnectionsMax = 32, kSearchMax = 100;

struct ModelsFlags {
  std::vector<std::string> words;
  DownloadFlags download;
  bool json = false;
  int limit = 10;
};

std::shared_ptr<ModelsFlags> flags_with_words(CLI::App& app, const char* name,
                                              const char* description) {
  auto flags = std::make_shared<ModelsFlags>();
  app.add_option(name, flags->words, description)->group("Flags");
  return flags;
}

// The names, of which there is one at least.
Result<std::vector<ModelName>> names_of(const ModelsFlags& flags, const char* command) {
  if (flags.words.empty()) {
    return invalid_argument(fmt::format("NAME is required (see 'headrace {} --help')", command));
  }
  std::vector<ModelName> names;
  for (const std::string& word : flags.words) {
    HR_ASSIGN_OR_RETURN(ModelName name, ModelName::read(word));
    names.push_back(std::move(name));
  }
  return names;
}

Result<int> pull_models(const ModelsFlags& flags) {
  HR_ASSIGN_OR_RETURN(const std::vector<ModelName> names, names_of(flags, "pull"));
  for (const ModelName& name : names) {
    if (name.kind() == NameKind::kPath) {
      return invalid_argument(fmt::format(
          "{}: expected USER/MODEL, a name of Ollama's registry or the address of a .gguf file",
          name.text()));
    }
    HR_ASSIGN_OR_RETURN(const std::string place, download_model(name, flags.download));
    fmt::print("{}\n", place);
  }
  return 0;
}

std::string date_text(std::filesystem::file_time_type time) {
  const auto system = std::chrono::file_clock::to_sys(time);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(system));
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(seconds));
}

void print_models(const std::vector<LocalModel>& models) {
  size_t width = 4;
  for (const LocalModel& model : models) width = std::max(width, model.name.size());
  fmt::print("{:<{}}  {:<11}  {:>8}  {}\n", "NAME", width, "FORMAT", "SIZE", "PULLED");
  for (const LocalModel& model : models) {
    fmt::print("{:<{}}  {:<11}  {:>8}  {}\n", terminal_safe(model.name), width, model.format,
               bytes_text(model.bytes), date_text(model.time));
  }
}

Result<int> list_local_models(const ModelsFlags& flags) {
  const std::vector<LocalModel> models = local_models();
  if (!flags.json) {
    print_models(models);
    return 0;
  }
  Json list = Json::array();
  for (const LocalModel& model : models) {
    list.push(Json::object()
                  .set("name", model.name)
                  .set("format", model.format)
                  .set("bytes", model.bytes)
                  .set("pulled", date_text(model.time)));
  }
  fmt::print("{}\n", write_json(list));
  return 0;
}

Result<int> show_models(const ModelsFlags& flags) {
  HR_ASSIGN_OR_RETURN(const std::vector<ModelName> names, names_of(flags, "show"));
  for (const ModelName& name : names) {
    HR_ASSIGN_OR_RETURN(const std::string model, local_model(name.text()));
    InspectOptions options;
    options.json = flags.json;
    HR_ASSIGN_OR_RETURN(const std::string report, inspect_model(model, options));
    fmt::print("{}", report);
  }
  return 0;
}

Result<int> remove_models(const ModelsFlags& flags) {
  HR_ASSIGN_OR_RETURN(const std::vector<ModelName> names, names_of(flags, "rm"));
  for (const ModelName& name : names) {
    HR_ASSIGN_OR_RETURN(const int64_t bytes, remove_local_model(name));
    fmt::print("{}: {} are free again\n", name.text(), bytes_text(bytes));
  }
  return 0;
}

Result<int> search_hub(const ModelsFlags& flags) {
  if (flags.words.empty()) {
    return invalid_argument("WORDS are required (see 'headrace search --help')");
  }
  HR_ASSIGN_OR_RETURN(const auto fetcher, HttpFetcher::open([] { return false; }));
  HR_ASSIGN_OR_RETURN(HubApi api, HubApi::open(*fetcher));
  HR_ASSIGN_OR_RETURN(const std::vector<HubFound> found,
                      api.search(fmt::format("{}", fmt::join(flags.words, " ")), flags.limit));
  size_t width = 4;
  for (const HubFound& each : found) width = std::max(width, each.name.size());
  if (!found.empty()) fmt::print("{:<{}}  {:>11}  {}\n", "NAME", width, "DOWNLOADS", "FILES");
  for (const HubFound& each : found) {
    fmt::print("{:<{}}  {:>11}  {}\n", each.name, width, each.downloads, each.gguf ? "GGUF" : "");
  }
  if (found.empty()) fmt::print(stderr, "{} has no such model\n", api.endpoint());
  return found.empty() ? 1 : 0;
}

}  // namespace

SubcommandRun define_pull(CLI::App& app) {
  auto flags =
      flags_with_words(app, "NAME", "USER/MODEL[@REVISION][:QUANT], MODEL:TAG or an address");
  app.add_option("--connections,--max-workers", flags->download.connections,
                 "A file's at once, at most")
      ->check(CLI::Range(1, kConnectionsMax))
      ->type_name("N")
      ->group("Flags");
  app.footer(kPullFooter);
  return [flags] { return pull_models(*flags); };
}

SubcommandRun define_list(CLI::App& app) {
  auto flags = std::make_shared<ModelsFlags>();
  app.add_flag("--json", flags->json, "As a list of objects")->group("Flags");
  app.footer(kListFooter);
  return [flags] { return list_local_models(*flags); };
}

SubcommandRun define_show(CLI::App& app) {
  auto flags =
      flags_with_words(app, "NAME", "A model of this machine, as 'headrace list' names it");
  app.add_flag("--json", flags->json, "As an object")->group("Flags");
  app.footer(kShowFooter);
  return [flags] { return show_models(*flags); };
}

SubcommandRun define_rm(CLI::App& app) {
  auto flags =
      flags_with_words(app, "NAME", "A model of this machine, as 'headrace list' names it");
  app.footer(kRmFooter);
  return [flags] { return remove_models(*flags); };
}

SubcommandRun define_search(CLI::App& app) {
  auto flags = flags_with_words(app, "WORDS", "Of a model's name on the hub");
  app.add_option("--limit", flags->limit, "How many are shown at most")
      ->check(CLI::Range(1, kSearchMax))
      ->type_name("N")
      ->group("Flags");
  app.footer(kSearchFooter);
  return [flags] { return search_hub(*flags); };
}

}  // namespace headrace
