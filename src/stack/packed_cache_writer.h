// Keeps the packed weights of a first start for later ones (--packed-cache): a thread that writes
// the file when it is in nobody's way.
#pragma once

#include <atomic>
#include <thread>

#include "weights/packed_cache.h"

namespace headrace {

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
