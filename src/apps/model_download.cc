#include "apps/model_download.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/signal_watch.h"
#include "base/clock.h"
#include "hub/file_choice.h"
#include "hub/model_pull.h"
#include "stack/hub_cache.h"
#include "tensor/free_memory.h"
#include "terminal/progress.h"
#include "terminal/safe_text.h"

namespace headrace {
namespace {

constexpr double kMegabyte = 1e6;

}  // namespace

std::string place_of_model(const ModelName& name) {
  const Result<std::string> model = local_model(name);
  if (!model.ok()) return {};
  if (!is_hub_name(*model) || name.kind() == NameKind::kPath) return *model;
  return hub_snapshot(*model).ok() ? *hub_snapshot(*model) : *model;
}

namespace {

bool person_agrees(const ModelPull& pull, const std::string& model) {
  fmt::print(stderr, "{} is not on this machine. Pull {} from {}? [y/N] ", model,
             bytes_text(pull.bytes_missing()), pull.host());
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

Status run_pull(ModelPull& pull, const PullOptions& options, const std::string& title) {
  const SystemClock clock;
  const double begun = clock.now_seconds();
  const int64_t missing = pull.bytes_missing();
  const auto whole = static_cast<double>(pull.bytes());
  Progress progress("pull " + title, "MB");
  const auto show = [&](int64_t bytes) {
    progress.update(static_cast<double>(bytes) / kMegabyte, whole / kMegabyte);
  };
  const Result<std::string> pulled = pull.run(options, show);
  progress.take_away();
  HR_RETURN_IF_ERROR(pulled.status());
  const double seconds = clock.now_seconds() - begun;
  if (missing == 0) {
    fmt::print(stderr, "{}: all of it is there ({})\n", title, bytes_text(pull.bytes()));
  } else {
    fmt::print(stderr, "{}: {} in {:.1f} s ({:.1f} MB/s)\n", title, bytes_text(missing), seconds,
               static_cast<double>(missing) / kMegabyte / seconds);
  }
  return ok_status();
}

Status plan_and_run(const ModelName& name, const PullOptions& options) {
  HR_ASSIGN_OR_RETURN(ModelPull pull, ModelPull::plan(name, options));
  return run_pull(pull, options, name.text());
}

// As SignalWatch ends a process, but with the line that says what is left.
[[noreturn]] void end_by_signal(int signal, const Status& status) {
  fmt::print(stderr, "headrace: error: {}\n", terminal_safe(status.message()));
  std::fflush(nullptr);
  _exit(128 + signal);
}

PullOptions pull_options(const DownloadFlags& flags, const std::atomic<bool>& stopped) {
  PullOptions options;
  options.stopped = [&stopped] { return stopped.load(); };
  options.memory_bytes = free_memory_bytes().value_or(int64_t{1} << 62);
  options.connections = flags.connections;
  return options;
}

// As one name: what --revision says stands in it.
Result<ModelName> name_with_revision(const std::string& model, const std::string& revision) {
  HR_ASSIGN_OR_RETURN(ModelName name, ModelName::read(model));
  if (revision.empty() || name.kind() != NameKind::kHub) return name;
  const std::string quant = name.quant().empty() ? "" : ":" + name.quant();
  return ModelName::read("hf:" + name.repo() + "@" + revision + quant);
}

Status pull_if_missing(const std::string& model, const std::string& revision, bool pull) {
  if (model.empty()) return ok_status();
  HR_ASSIGN_OR_RETURN(const ModelName name, name_with_revision(model, revision));
  if (name.kind() == NameKind::kPath || local_model(name.text()).ok()) return ok_status();
  if (pull) return download_model(name, {}).status();
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) return ok_status();
  std::atomic<bool> stopped{false};
  const PullOptions options = pull_options({}, stopped);
  HR_ASSIGN_OR_RETURN(const ModelPull asked, ModelPull::plan(name, options));
  if (!person_agrees(asked, model)) return ok_status();
  return download_model(name, {}).status();
}

}  // namespace

Result<std::string> download_model(const ModelName& name, const DownloadFlags& flags) {
  std::atomic<bool> stopped{false};
  std::atomic<int> signal_that_came{0};
  SignalWatch signals;
  signals.set_handler([&](int signal) {
    signal_that_came = signal;
    stopped = true;
  });
  const Status status = plan_and_run(name, pull_options(flags, stopped));
  if (!status.ok() && stopped) end_by_signal(signal_that_came, status);
  HR_RETURN_IF_ERROR(status);
  signals.set_handler(nullptr);
  return place_of_model(name);
}

void add_pull_flag(CLI::App& app, bool& pull) {
  app.add_flag(
         "--pull", pull,
         "Fetch the model first if it is not on this machine (without it a terminal is asked, "
         "and anything else gets an error)")
      ->group("Model");
}

Status pull_missing_models(const ModelFlags& flags, bool pull) {
  std::vector<std::string> wanted = flags.models;
  wanted.push_back(flags.stack.model);
  wanted.push_back(flags.hf_repo);
  for (const std::string& text : wanted) {
    // -m of a server may be NAME=MODEL.
    const size_t equals = text.find('=');
    const bool named = equals != text.npos && equals < text.find('/');
    HR_RETURN_IF_ERROR(
        pull_if_missing(named ? text.substr(equals + 1) : text, flags.revision, pull));
  }
  return ok_status();
}

}  // namespace headrace
