#include "apps/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "apps/default_model.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

fs::path hub_folder() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return user_cache_folder() / "huggingface" / "hub";
}

bool is_word(std::string_view text) {
  return !text.empty() && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

bool is_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == name.npos) return false;
  const std::string_view text(name);
  return is_word(text.substr(0, slash)) && is_word(text.substr(slash + 1));
}

Result<std::string> hub_snapshot(const std::string& name) {
  const size_t slash = name.find('/');
  const fs::path hub = hub_folder();
  const fs::path model =
      hub / fmt::format("models--{}--{}", name.substr(0, slash), name.substr(slash + 1));
  std::string revision;
  std::ifstream(model / "refs" / "main") >> revision;
  const fs::path snapshot = model / "snapshots" / revision;
  std::error_code ignored;
  if (is_word(revision) && fs::is_directory(snapshot, ignored)) return snapshot.string();
  return not_found(fmt::format(
      "{}: there is no such file or folder, nor a model of that name in {}: fetch it first ('hf "
      "download {}')",
      name, hub.string(), name));
}

}  // namespace headrace
