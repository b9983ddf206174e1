#include "stack/default_model.h"

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "stack/hub_cache.h"
#include "stack/model_names.h"

namespace headrace {
namespace {

constexpr const char* kFileName = "SmolLM2-135M-Instruct.Q4_1.gguf";

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::filesystem::path user_cache_folder() {
  const std::string cache = environment("XDG_CACHE_HOME");
  return cache.empty() ? std::filesystem::path(environment("HOME")) / ".cache"
                       : std::filesystem::path(cache);
}

std::filesystem::path program_cache_folder() { return user_cache_folder() / "headrace"; }

Result<std::string> default_model_path() {
  for (const char* variable : {"HEADRACE_MODEL", "LLAMA_ARG_MODEL"}) {
    const std::string named = environment(variable);
    if (named.empty()) continue;
    const Result<std::string> model = local_model(named);
    std::error_code error;
    if (!model.ok() || is_hub_name(*model)) return model;
    if (std::filesystem::exists(*model, error)) return model;
    return not_found(
        fmt::format("${} names {}, and there is no such file or folder", variable, named));
  }
  const std::filesystem::path path = program_cache_folder() / "models" / kFileName;
  if (is_file(path)) return path.string();
  return not_found(
      fmt::format("no model given and the default one is not at {}: fetch it with ./quickstart, "
                  "or name a .gguf file with -m",
                  path.string()));
}

}  // namespace headrace
