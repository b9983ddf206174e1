#include "stack/model_source.h"

#include <filesystem>

#include <fmt/format.h>

#include "stack/gguf_source.h"
#include "stack/hf_folder.h"
#include "stack/hub_cache.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// "model-00001-of-00003" -> "model"
std::string without_part(std::string stem) {
  constexpr std::string_view kPattern = "-00000-of-00000";
  if (stem.size() <= kPattern.size()) return stem;
  const size_t start = stem.size() - kPattern.size();
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const char c = stem[start + i];
    if (kPattern[i] == '0' ? c < '0' || c > '9' : c != kPattern[i]) return stem;
  }
  return stem.substr(0, start);
}

// What is not whole yet may well have a header that can be read, and nothing behind it.
Status check_is_whole(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return ok_status();
  const std::string extension = path.extension().string();
  const std::string whole = fs::path(path).replace_extension().string();
  if (extension == ".part" || extension == ".incomplete") {
    return unavailable(fmt::format(
        "{}: is an unfinished download: the 'headrace pull' that began it goes on with it, and "
        "makes {} of it",
        path.string(), whole));
  }
  if (extension != ".partial") return ok_status();
  return unavailable(fmt::format(
      "{}: is an unfinished file: the 'headrace quantize' (or the download) that makes {} goes on "
      "with it when it is given again",
      path.string(), whole));
}

}  // namespace

std::string model_name(const std::string& path) {
  if (is_hub_name(path) && !fs::exists(path)) return hub_name_parts(path).model;
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path file = absolute.has_filename() ? absolute : absolute.parent_path();
  if (file.extension() == ".gguf") return without_part(file.stem().string());
  const bool inside = file.extension() == ".json" || file.extension() == ".safetensors";
  return (inside ? file.parent_path() : file).filename().string();
}

Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path,
                                                       const std::string& map) {
  std::error_code ignored;
  const fs::path extension = fs::path(path).extension();
  HR_RETURN_IF_ERROR(check_is_whole(path));
  if (!fs::exists(path, ignored) && is_hub_name(path)) {
    HR_ASSIGN_OR_RETURN(const std::string snapshot, hub_snapshot(path));
    return open_hf_folder(snapshot, map);
  }
  const bool hf =
      fs::is_directory(path, ignored) || extension == ".json" || extension == ".safetensors";
  if (!hf && !map.empty()) {
    return invalid_argument(
        fmt::format("--architecture-map: {} is no Hugging Face folder, of whose classes maps are",
                    path),
        "architecture-map");
  }
  return hf ? open_hf_folder(path, map) : open_gguf_source(path);
}

}  // namespace headrace
