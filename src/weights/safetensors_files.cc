#include "weights/safetensors_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "weights/safetensors_index.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

// A shard holds what the index says, no more and no less.
Status check_shard(const SafetensorsFile& file, std::vector<std::string>& expected) {
  for (const std::string& name : expected) {
    if (file.find(name) == nullptr) {
      return corrupt(fmt::format("{}: tensor {}: missing ({} says it is here)", file.name(),
                                 printable(name), kIndex),
                     name);
    }
  }
  if (file.plan().tensors.size() == expected.size()) return ok_status();
  std::sort(expected.begin(), expected.end());
  for (const SafetensorsTensor& tensor : file.plan().tensors) {
    if (!std::binary_search(expected.begin(), expected.end(), tensor.name)) {
      return corrupt(fmt::format("{}: tensor {}: {} does not say it is here", file.name(),
                                 printable(tensor.name), kIndex),
                     tensor.name);
    }
  }
  return ok_status();
}

Result<SafetensorsFiles> open_shards(const fs::path& folder) {
  const std::string index = (folder / kIndex).string();
  HR_ASSIGN_OR_RETURN(ShardTensors shards, read_safetensors_index(index));
  SafetensorsFiles files;
  for (auto& [name, tensors] : shards) {
    auto file = SafetensorsFile::open((folder / name).string());
    if (file.status().code() == StatusCode::kNotFound) {
      return not_found(fmt::format("{}: missing, but {} names it: fetch the folder again",
                                   (folder / name).string(), kIndex));
    }
    HR_RETURN_IF_ERROR(file.status());
    HR_RETURN_IF_ERROR(check_shard(**file, tensors));
    files.push_back(std::move(file).value());
  }
  return files;
}

// What a folder without safetensors has instead, for the message.
std::string other_weights(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) {
      return fmt::format(
          " ({} is a pickle, which can run code when it is opened: it is not read; "
          "convert it to safetensors)",
          printable(name));
    }
    if (name.ends_with(".gguf")) return fmt::format(" (name {} itself)", printable(name));
  }
  return "";
}

}  // namespace

Result<SafetensorsFiles> open_safetensors_files(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    HR_ASSIGN_OR_RETURN(auto file, SafetensorsFile::open(path));
    return SafetensorsFiles{std::move(file)};
  }
  const fs::path folder(path);
  if (fs::exists(folder / kIndex, ignored)) return open_shards(folder);
  if (!fs::exists(folder / kSingle, ignored)) {
    return not_found(fmt::format("{}: there is no {} and no {}{}", path, kSingle, kIndex,
                                 other_weights(folder)));
  }
  HR_ASSIGN_OR_RETURN(auto file, SafetensorsFile::open((folder / kSingle).string()));
  return SafetensorsFiles{std::move(file)};
}

}  // namespace headrace
