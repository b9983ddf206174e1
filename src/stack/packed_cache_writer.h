// When the packed weights of a first start are kept for later ones (--packed-cache): whether the
// file is worth its room, and a thread that writes it when it is in nobody's way.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <thread>

#include "weights/packed_cache.h"

namespace headrace {

// Of `bytes` of packed weights. `mode`: "on", or "auto", for weights of middle size where the disk
// has ample room.
bool worth_keeping(const PackedCache& cache, int64_t bytes, std::string_view mode);

// Ends by waiting for the file: weights are all packed and there as long as this object.
class PackedCacheWriter {
 public:
  // Writes beside the first answers, if they take long, else behind them; not before all_packed().
  // At most once. `cache` outlives this object.
  void start(PackedCache& cache);
  void all_packed();
  bool waits_for_packing() const { return thread_.joinable() && !all_packed_; }

 private:
  std::atomic<bool> all_packed_ = false;
  std::jthread thread_;
};

}  // namespace headrace
