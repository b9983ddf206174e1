// Models that clients ask for by /api/pull, where the operator allows it: one comes at a time, on a
// thread of its own, and is served from then on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "server/model_pool.h"

namespace headrace {

// What brings a model onto this machine. On any thread, one call at a time.
class ModelFetcher {
 public:
  using Progress = std::function<void(int64_t bytes_there, int64_t bytes)>;

  virtual ~ModelFetcher() = default;
  // Blocks until all of the model is there, or `stopped` says so. kInvalidArgument: clients may not
  // fetch by such a name. What has come of a model stays, and is gone on from. The spec has `name`
  // as its first name.
  virtual Result<ServedModelSpec> fetch(const std::string& name,
                                        const std::function<bool()>& stopped,
                                        const Progress& progress) = 0;
};

// Any thread.
class ModelFetches {
 public:
  ~ModelFetches() { stop(); }

  // Before all else; it outlives stop(). Without it nothing is allowed.
  void allow(ModelFetcher& fetcher) { fetcher_ = &fetcher; }
  ModelFetcher* fetcher() const { return fetcher_; }

  // Runs `work` on the thread. False: one is under way, or the server stops.
  bool begin(std::function<void()> work);
  // Whether what is under way shall end.
  bool stops() const { return stops_; }
  // No more from now on; what is under way ends soon.
  void begin_stop() { stops_ = true; }
  // The same, and waits for it.
  void stop();

 private:
  ModelFetcher* fetcher_ = nullptr;
  std::mutex mutex_;
  std::thread thread_;
  std::atomic<bool> running_{false}, stops_{false};
};

}  // namespace headrace
