#include "stack/packed_cache_planning.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "stack/default_model.h"
#include "weights/file_identity.h"

namespace headrace {
namespace {

// With auto: the sizes of a file, and how many such files the disk must have room for.
constexpr int64_t kBytesMin = int64_t{16} << 20, kBytesMax = int64_t{2} << 30;
constexpr int64_t kRoom = 8;

bool has_ample_room(const PackedCache& cache, int64_t bytes) {
  std::filesystem::path folder = cache.path();
  std::error_code error;
  do {  // the folder may be made only when a file is written
    folder = folder.parent_path();
  } while (!std::filesystem::exists(folder, error) && folder.has_relative_path());
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  return !error && space.available >= static_cast<uint64_t>(kRoom * bytes);
}

}  // namespace

std::unique_ptr<PackedCache> open_packed_cache(const LoadOptions& options, const std::string& model,
                                               const ModelWeights& weights, ComputeType compute,
                                               Device& device, Timeline* timeline) {
  if (options.packed_cache == PackedCacheUse::kOff || device.kind() == DeviceKind::kCuda) {
    return nullptr;
  }
  ThreadPool& pool = device.pool();
  const std::vector<std::string> paths = weights.weights->paths();
  if (paths.empty() || pool.several_nodes()) return nullptr;
  const Timeline::Span span(timeline, "packed file");
  std::string key = file_identity("/proc/self/exe");
  for (const std::string& path : paths) key += " " + file_identity(path);
  key += fmt::format(" {} {}", static_cast<int>(compute),
                     name_of(kQuantizations, options.quantise_to));
  std::filesystem::path folder = options.packed_cache_folder;
  if (folder.empty()) folder = program_cache_folder() / "packed";
  // Without a home its files would lie wherever the program is started.
  if (options.packed_cache_folder.empty() && folder.is_relative()) return nullptr;
  return PackedCache::open(folder, model_name(model), key, pool);
}

bool worth_keeping(const PackedCache& cache, int64_t bytes, PackedCacheUse use) {
  if (use == PackedCacheUse::kOn) return true;
  return bytes >= kBytesMin && bytes <= kBytesMax && has_ample_room(cache, bytes);
}

bool packs_at_use(const LoadOptions& options, const ModelWeights& weights, Device& device) {
  return options.pack_weights == PackTime::kUse && device.kind() != DeviceKind::kCuda &&
         !weights.weights->paths().empty() && !device.pool().several_nodes();
}

}  // namespace headrace
