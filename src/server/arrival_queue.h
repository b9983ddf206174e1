// From the engine's thread to a request's strand: a bounded queue of emissions that outlives the
// session, so that an engine may keep its sinks for longer than a server lives.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "sched/request.h"

namespace headrace {

struct Arrival {
  size_t prompt = 0;
  double time = 0;  // of the SystemClock, seconds, when the engine emitted
  Emission emission;
};

class ArrivalQueue {
 public:
  // `notify` is called when something waits, once until the next begin_take(). It must not block.
  // Over `tokens_max` queued tokens the queue is overrun: it drops what it has and takes no more.
  ArrivalQueue(size_t tokens_max, std::function<void()> notify)
      : tokens_max_(tokens_max), notify_(std::move(notify)) {}

  // `first_choice`: of the prompt's choices, the emission's choice 0. Any thread.
  void push(size_t prompt, int32_t first_choice, const Emission& emission);

  // True when the queue was overrun.
  bool begin_take();
  std::optional<Arrival> take();
  // Nothing more is wanted; `notify` is destroyed and never called again.
  void close();

 private:
  void drop_all();
  static size_t tokens_of(const Emission& emission) {
    return emission.tokens.size() + emission.prompt_logprobs.size();
  }

  const size_t tokens_max_;
  const SystemClock clock_;
  std::mutex mutex_;
  std::function<void()> notify_;   // empty: closed
  std::vector<Arrival> arrivals_;  // those before taken_ are gone; nothing is allocated in a stream
  size_t taken_ = 0;
  size_t tokens_ = 0;  // in arrivals_, not taken
  bool notified_ = false;
  bool overrun_ = false;
};

}  // namespace headrace
