#include "stack/packed_cache_writer.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>

#include "base/log.h"

namespace headrace {
namespace {

constexpr int64_t kFolderBytes = int64_t{4} << 30;  // of all files together
constexpr std::chrono::seconds kDelay{2};

}  // namespace

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
