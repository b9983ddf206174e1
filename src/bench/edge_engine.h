// EdgeEngine: an Engine that computes nothing and gives a token to every stream at a set pace, so
// that what is measured is the server in front of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace headrace {

struct EdgeEngineOptions {
  int32_t vocab_size = 0;
  std::vector<TokenId> tokens;  // that streams get, drawn at random
  int32_t streams = 1;          // the first step waits until so many requests are there
  int32_t steps = 1;            // tokens of each
  double steps_per_second = 0;  // 0: as soon as may_step says
  // Called before the first step, and before each where there is no pace: whether clients have
  // taken enough of the steps before. On the engine's thread, again and again.
  std::function<bool(int64_t steps_done)> may_step;
  // Told of each step before its first emission: what a client sees later is delay.
  std::function<void(int64_t step)> on_step;
};

// Requests differ in nothing; each gets its tokens in the same steps.
class EdgeEngine final : public Engine {
 public:
  explicit EdgeEngine(EdgeEngineOptions options);
  ~EdgeEngine() override;

  RequestId next_request_id() override { return RequestId(++last_id_); }
  Status submit(Request request, EmissionSink sink) override;
  void cancel(RequestId request) override;
  void cancel_choice(RequestId request, int32_t) override { cancel(request); }
  void pin_prefix(uint64_t, std::string, std::vector<TokenId>,
                  std::function<void(int64_t)> done) override {
    done(0);
  }
  void unpin_prefix(uint64_t) override {}
  EngineStats stats() const override { return {}; }
  Status health() const override { return ok_status(); }
  bool drain(double) override { return true; }
  const EngineOptions& options() const override { return engine_options_; }

  // CPU time of the engine's thread so far, seconds. Any thread.
  double cpu_seconds() const { return static_cast<double>(cpu_ns_.load()) * 1e-9; }

 private:
  struct Live {
    RequestId id;
    EmissionSink sink;
  };
  void loop();
  bool wait_until_all_are_there();
  bool wait_for_step(int64_t step, int64_t begin_ns);
  void step(int64_t step);

  const EdgeEngineOptions options_;
  EngineOptions engine_options_;
  std::atomic<uint64_t> last_id_{0};
  std::atomic<int64_t> cpu_ns_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Live> arrived_, live_;  // live_: of the engine's thread
  std::vector<RequestId> cancelled_;
  int32_t arrived_count_ = 0;
  std::thread thread_;
};

}  // namespace headrace
