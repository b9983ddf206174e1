#include "stack/packed_cache_writer.h"

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <system_error>

#include "base/log.h"

namespace headrace {
namespace {

constexpr int64_t kFolderBytes = int64_t{4} << 30;  // of all files together
// With auto: the sizes of a file, and how many such files the disk must have room for.
constexpr int64_t kBytesMin = int64_t{16} << 20, kBytesMax = int64_t{2} << 30;
constexpr int64_t kRoom = 8;
constexpr std::chrono::seconds kDelay{2};

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

bool worth_keeping(const PackedCache& cache, int64_t bytes, std::string_view mode) {
  if (mode == "on") return true;
  return bytes >= kBytesMin && bytes <= kBytesMax && has_ample_room(cache, bytes);
}

void PackedCacheWriter::start(PackedCache& cache) {
  thread_ = std::jthread([this, &cache](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, stop, kDelay, [] { return false; });
    all_packed_.wait(false);
    const Status status = cache.write(kFolderBytes);
    if (!status.ok()) log_info("no packed weights are kept: {}", status.message());
  });
}

void PackedCacheWriter::all_packed() {
  all_packed_ = true;
  all_packed_.notify_all();
}

}  // namespace headrace
