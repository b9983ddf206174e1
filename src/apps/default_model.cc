#include "apps/default_model.h"

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr const char* kFileName = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

}  // namespace

std::filesystem::path program_cache_folder() {
  const std::string cache = environment("XDG_CACHE_HOME");
  std::filesystem::path folder = cache;
  if (cache.empty()) folder = std::filesystem::path(environment("HOME")) / ".cache";
  return folder / "headrace";
}

Result<std::string> default_model_path() {
  if (const std::string named = environment("HEADRACE_MODEL"); !named.empty()) {
    if (is_file(named)) return named;
    return not_found(fmt::format("$HEADRACE_MODEL names {}, which is no file", named));
  }
  const std::filesystem::path path = program_cache_folder() / "models" / kFileName;
  if (is_file(path)) return path.string();
  return not_found(
      fmt::format("no model given and the default one is not at {}: fetch it with ./quickstart, "
                  "or name a .gguf file with -m",
                  path.string()));
}

}  // namespace headrace
