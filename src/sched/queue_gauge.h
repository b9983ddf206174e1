// How full the queue is, in requests, tokens and seconds, and how long until it has room: what a
// refusal tells the client. Rates are exponential means over the last kWindowSeconds in which there
// was work, of what really happened: an idle hour says nothing about how fast a queue drains. One
// thread at a time.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "sched/scheduler.h"

namespace headrace {

class QueueGauge {
 public:
  static constexpr double kWindowSeconds = 10;
  static constexpr double kRetrySecondsMin = 1, kRetrySecondsMax = 600;

  explicit QueueGauge(const SchedulerOptions& options);

  // kExhausted, naming the bound, where a request with such a prompt would overfill the queue.
  Status check(int64_t prompt_tokens, double now_seconds) const;
  void entered(int64_t prompt_tokens, double now_seconds);
  void started(int64_t prompt_tokens, double now_seconds);  // its first result is there
  void left_unstarted(int64_t prompt_tokens);               // cancelled in the queue
  void ended(double now_seconds);

  int64_t outstanding() const { return outstanding_; }
  int64_t queued_tokens() const { return queued_tokens_; }
  // Until the prompts in the queue are computed; 0 while nothing is known.
  double drain_seconds(double now_seconds) const;
  // Until a request with such a prompt would be taken, as things go now.
  double retry_seconds(int64_t prompt_tokens, double now_seconds) const;

 private:
  // Events a second of busy time, which begins at 0.
  struct Rate {
    double value = 0, last = 0;  // not yet divided by how much of the window there was
    void add(double amount, double busy);
    double at(double busy) const;
  };
  double busy_seconds(double now_seconds) const;

  const int64_t requests_max_, tokens_max_;
  const double seconds_max_;
  int64_t outstanding_ = 0;
  int64_t queued_tokens_ = 0;
  double busy_before_ = 0;  // seconds with requests, until the last time without
  double busy_since_ = 0;   // while outstanding_ > 0
  Rate prompt_tokens_, ends_;
};

}  // namespace headrace
