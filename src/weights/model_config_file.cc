// ModelConfig from the files of a Hugging Face folder.
#include <filesystem>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "weights/architecture_map.h"
#include "weights/mamba_families.h"
#include "weights/model_config.h"

namespace headrace {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;

Result<Json> read_config_file(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  if (bytes.size() > kConfigBytesMax) {
    return corrupt(fmt::format("{}: {} bytes, a configuration has at most {}", path, bytes.size(),
                               kConfigBytesMax));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto json = parse_json(text);
  if (!json.ok()) json = parse_json(without_infinities(text));
  if (!json.ok()) return json.status().with_context(path);
  return json;
}

}  // namespace

Result<ModelConfig> model_config_from_file(const std::string& path, const ArchitectureMap* map) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path config_path =
      fs::is_directory(path, ignored) ? fs::path(path) / "config.json" : fs::path(path);
  HR_ASSIGN_OR_RETURN(Json config, read_config_file(config_path.string()));
  if (map != nullptr) {
    HR_ASSIGN_OR_RETURN(config, map->apply(config));
  }
  const fs::path generation_path = config_path.parent_path() / "generation_config.json";
  Json generation;
  if (fs::exists(generation_path, ignored)) {
    HR_ASSIGN_OR_RETURN(generation, read_config_file(generation_path.string()));
  }
  return model_config_from_json(config, generation, config_path.string());
}

}  // namespace headrace
