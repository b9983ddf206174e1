#include "cli/environment_flags.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "cli/command_line.h"

namespace headrace {
namespace {

// llama-server's variables whose flag is not spelled as they are.
struct Variable {
  std::string_view name, flag;
};
constexpr Variable kVariables[] = {
    {"N_PARALLEL", "parallel"},
    {"BATCH", "batch-size"},
    {"UBATCH", "ubatch-size"},
    {"N_PREDICT", "n-predict"},
    {"ENDPOINT_METRICS", "metrics"},
    {"ENDPOINT_SLOTS", "slots"},
    {"ENDPOINT_PROPS", "props"},
    {"THINK", "reasoning-format"},
    {"THINK_BUDGET", "reasoning-budget"},
};

// Read where their default is, or by CLI11 (envname).
constexpr std::string_view kOwnMeaning[] = {"HEADRACE_MODEL", "HEADRACE_API_KEY",
                                            "HEADRACE_PACKED_CACHE", "LLAMA_ARG_MODEL"};
constexpr std::string_view kOwn = "HEADRACE_", kLlama = "LLAMA_ARG_", kOllama = "OLLAMA_";

// What begins variables of kOwn that are no flags: other commands' and tests', and what Kubernetes
// sets for a service of that name.
constexpr std::string_view kNoFlags[] = {
    "CPU_ISA",   "SERVER", "OLLAMA_REGISTRY", "MODEL_",   "SIM_",    "ROUTE_",   "BENCH_",
    "BINARY",    "BIN",    "TESTS",           "TINY_",    "SHARED",  "OPENAPI_", "SCRIPTED_",
    "FAULTY_",   "SOAK_",  "LOG_TAIL",        "PACKAGE_", "SITE",    "CUDA",     "UNITY",
    "SANITIZE_", "BUILD_", "SERVICE_",        "PORT_",    "VERSION", "INCLUDE_"};

bool begins_no_flag(std::string_view name) {
  return std::any_of(std::begin(kNoFlags), std::end(kNoFlags),
                     [&](std::string_view begin) { return name.starts_with(begin); });
}

// Ollama's variables of its server, and what to do here instead.
constexpr Variable kOllamaVariables[] = {
    {"OLLAMA_HOST", "--host and --port say where the server listens"},
    {"OLLAMA_KEEP_ALIVE", "--model-idle-timeout says for how long a model stays"},
    {"OLLAMA_MODELS", "--models-dir names a folder of models"},
    {"OLLAMA_NUM_PARALLEL", "--max-num-seqs bounds what is answered at a time"},
    {"OLLAMA_CONTEXT_LENGTH", "--max-model-len sets the context"},
    {"OLLAMA_MAX_QUEUE", "--max-num-queued-reqs bounds the queue"},
    {"OLLAMA_ORIGINS", "--allowed-origins names pages that may call"},
    {"OLLAMA_KV_CACHE_TYPE", "--kv-cache-dtype sets it"},
};

void tell_ollama_variable(std::string_view name) {
  for (const Variable& variable : kOllamaVariables) {
    if (variable.name != name) continue;
    fmt::print(stderr, "headrace: warning: {} is not read: {}\n", name, variable.flag);
  }
}

// "MAX_MODEL_LEN" -> "--max-model-len"
std::string flag_of_variable(std::string_view name) {
  std::string flag = "--";
  for (char c : name) {
    flag += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return flag;
}

std::string flag_of_llama_variable(std::string_view name) {
  for (const Variable& variable : kVariables) {
    if (variable.name == name) return "--" + std::string(variable.flag);
  }
  return flag_of_variable(name);
}

std::optional<bool> yes_or_no(std::string_view value) {
  constexpr std::string_view kYes[] = {"1", "true", "on", "yes", "enabled"};
  constexpr std::string_view kNo[] = {"0", "false", "off", "no", "disabled"};
  if (std::find(std::begin(kYes), std::end(kYes), value) != std::end(kYes)) return true;
  if (std::find(std::begin(kNo), std::end(kNo), value) != std::end(kNo)) return false;
  return std::nullopt;
}

bool is_switch(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

// What the flag is on a command line.
std::string argument_of(const CLI::Option& option, const std::string& flag,
                        std::string_view value) {
  const std::optional<bool> yes = is_switch(option) ? yes_or_no(value) : std::nullopt;
  return fmt::format("{}={}", flag, !yes ? value : *yes ? "true" : "false");
}

std::set<const CLI::Option*> options_in(const CLI::App& app, std::vector<std::string> arguments) {
  std::set<const CLI::Option*> given;
  for (const std::string& argument : normalise_arguments(app, std::move(arguments))) {
    if (argument == "--") break;
    if (!argument.starts_with('-')) continue;
    const CLI::Option* option = app.get_option_no_throw(argument.substr(0, argument.find('=')));
    // "-n5" is -n.
    if (option == nullptr && !argument.starts_with("--")) {
      option = app.get_option_no_throw(argument.substr(0, 2));
    }
    given.insert(option);
  }
  return given;
}

void tell_unread(std::string_view name) {
  fmt::print(stderr, "headrace: warning: {} is not read: there is nothing like it here\n", name);
}

}  // namespace

EnvironmentFlags flags_of_environment(const CLI::App& app,
                                      const std::vector<std::string>& arguments) {
  EnvironmentFlags flags;
  if (app.get_option_no_throw("--model") == nullptr) return flags;  // a command without a model
  const std::set<const CLI::Option*> given = options_in(app, arguments);
  const bool serves = app.get_option_no_throw("--port") != nullptr;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool llama = name.starts_with(kLlama);
    if (serves && name.starts_with(kOllama)) tell_ollama_variable(name);
    if (!llama && !name.starts_with(kOwn)) continue;
    if (std::find(std::begin(kOwnMeaning), std::end(kOwnMeaning), name) != std::end(kOwnMeaning)) {
      continue;
    }
    const std::string_view value = text.substr(std::min(text.size(), name.size() + 1));
    const std::string flag = llama ? flag_of_llama_variable(name.substr(kLlama.size()))
                                   : flag_of_variable(name.substr(kOwn.size()));
    const CLI::Option* option = app.get_option_no_throw(flag);
    const bool own = !llama && !begins_no_flag(name.substr(kOwn.size()));
    if (option == nullptr && (llama || own)) tell_unread(name);
    if (option == nullptr || option == app.get_help_ptr() || given.count(option) > 0) continue;
    if (is_switch(*option) && value.empty()) continue;
    flags.arguments.push_back(argument_of(*option, flag, value));
    flags.variables.emplace_back(name);
  }
  return flags;
}

std::vector<std::string> with_environment(const EnvironmentFlags& flags,
                                          std::vector<std::string> arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  arguments.insert(end, flags.arguments.begin(), flags.arguments.end());
  return arguments;
}

}  // namespace headrace
