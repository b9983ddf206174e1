#include "weights/safetensors_index.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace headrace {
namespace {

constexpr size_t kIndexBytesMax = 64 << 20;
constexpr size_t kShardsMax = 10'000;
constexpr std::string_view kMap = "weight_map";

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.ends_with(".safetensors") &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

Result<ShardTensors> parse_safetensors_index(std::string_view text, std::string_view name) {
  const auto corrupt_map = [&](std::string_view what) {
    return corrupt(fmt::format("{}: {}: {}", name, kMap, what), std::string(kMap));
  };
  // What the file holds beside the map: a few numbers.
  constexpr JsonLimits kLimits{
      .depth_max = 8, .key_count_max = kSafetensorsTensorsMax + 100, .element_count_max = 1000};
  const auto json = parse_json(text, kLimits);
  if (!json.ok()) return corrupt(fmt::format("{}: {}", name, json.status().message()));
  const Json* map = json->find(kMap);
  if (map == nullptr || !map->is_object() || map->as_object().empty()) {
    return corrupt_map("is no object that names shards");
  }
  ShardTensors shards;
  for (const auto& [tensor, shard] : map->as_object()) {
    if (!shard.is_string() || !is_plain_file_name(shard.as_string())) {
      return corrupt_map(
          fmt::format("tensor {}: its shard is no name of a .safetensors file in this folder",
                      printable(tensor)));
    }
    shards[shard.as_string()].push_back(tensor);
    if (shards.size() > kShardsMax) {
      return corrupt_map(fmt::format("more than {} shards", kShardsMax));
    }
  }
  return shards;
}

Result<ShardTensors> read_safetensors_index(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  if (bytes.size() > kIndexBytesMax) {
    return corrupt(
        fmt::format("{}: {} bytes, an index has at most {}", path, bytes.size(), kIndexBytesMax));
  }
  return parse_safetensors_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace headrace
