// Whether a worker may be sent requests: judged by whether it answers, and what. A circuit breaker
// whose probes are the router's polls. No sockets, no clock but the one it is given.
#pragma once

#include <algorithm>
#include <string_view>

namespace headrace {

enum class WorkerState { kUnknown /* no answer yet */, kUp, kDraining, kDown };

constexpr std::string_view worker_state_name(WorkerState state) {
  switch (state) {
    case WorkerState::kUnknown:
      return "unknown";
    case WorkerState::kUp:
      return "up";
    case WorkerState::kDraining:
      return "draining";
    case WorkerState::kDown:
      return "down";
  }
  return "";
}

// One thread at a time.
class WorkerHealth {
 public:
  static constexpr int kErrorsMax = 5;  // answers 500 in a row: then nothing is sent for a while
  static constexpr double kOpenSeconds = 1, kOpenSecondsMax = 30;

  WorkerState state() const {
    if (state_ == WorkerState::kUp && (drain_asked_ || drain_told_)) return WorkerState::kDraining;
    return state_;
  }
  bool takes_requests(double now) const {
    return state() == WorkerState::kUp && now >= closed_until_;
  }

  // A poll was answered: it is ready, or says that it is shutting down, loading or stuck.
  void on_ready(double now) {
    if (state_ != WorkerState::kUp) {  // it may have started anew: its errors were another's
      errors_ = 0;
      open_seconds_ = kOpenSeconds;
      closed_until_ = 0;
    }
    state_ = WorkerState::kUp;
    drain_told_ = false;
    heard_ = now;
  }
  void on_drain_told(double now) {
    state_ = WorkerState::kUp;
    drain_told_ = true;
    heard_ = now;
  }
  void on_not_ready(double now) {
    state_ = WorkerState::kDown;
    heard_ = now;
  }
  // A connection was refused or broke, or a poll was not answered in its time: down until one is.
  void on_lost() { state_ = WorkerState::kDown; }

  // A stream has begun: how it ends is not known yet.
  void on_heard(double now) { heard_ = std::max(heard_, now); }
  // What a request met: an answer's status, 500 also for a stream that ends with an error. One may
  // be the request's fault; many in a row are the worker's.
  void on_answer(int status, double now) {
    heard_ = std::max(heard_, now);
    if (status != 500) {
      errors_ = 0;
      open_seconds_ = kOpenSeconds;
    } else if (++errors_ >= kErrorsMax) {
      errors_ = kErrorsMax - 1;  // one more after the pause closes it again
      closed_until_ = now + open_seconds_;
      open_seconds_ = std::min(2 * open_seconds_, kOpenSecondsMax);
    }
  }

  // By the operator.
  void ask_drain(bool drain) { drain_asked_ = drain; }

  // When it last answered anything.
  double heard_seconds() const { return heard_; }

 private:
  WorkerState state_ = WorkerState::kUnknown;
  bool drain_asked_ = false, drain_told_ = false;
  int errors_ = 0;
  double open_seconds_ = kOpenSeconds, closed_until_ = 0;
  double heard_ = -1e18;
};

}  // namespace headrace
