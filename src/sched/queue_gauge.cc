#include "sched/queue_gauge.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr double kBusySecondsMin = 1;  // less is no measure of a rate

}  // namespace

void QueueGauge::Rate::add(double amount, double busy) {
  value = value * std::exp(-(busy - last) / kWindowSeconds) + amount / kWindowSeconds;
  last = busy;
}

double QueueGauge::Rate::at(double busy) const {
  const double seen = 1 - std::exp(-std::max(kBusySecondsMin, busy) / kWindowSeconds);
  return value * std::exp(-(busy - last) / kWindowSeconds) / seen;
}

double QueueGauge::busy_seconds(double now_seconds) const {
  return busy_before_ + (outstanding_ > 0 ? std::max(0.0, now_seconds - busy_since_) : 0);
}

QueueGauge::QueueGauge(const SchedulerOptions& options)
    : requests_max_(int64_t{options.max_num_seqs} + options.max_queued_requests),
      tokens_max_(options.queue_bounds.tokens),
      seconds_max_(options.queue_bounds.seconds) {}

Status QueueGauge::check(int64_t prompt_tokens, double now_seconds) const {
  if (outstanding_ >= requests_max_) {
    return exhausted(
        fmt::format("{} requests are running or queued, the most this server takes", outstanding_));
  }
  // An empty queue takes any request.
  if (tokens_max_ > 0 && queued_tokens_ > 0 && queued_tokens_ + prompt_tokens > tokens_max_) {
    return exhausted(
        fmt::format("{} prompt tokens are queued, with these {} more than the {} this "
                    "server takes",
                    queued_tokens_, prompt_tokens, tokens_max_));
  }
  const double wait = drain_seconds(now_seconds);
  if (seconds_max_ > 0 && wait > seconds_max_) {
    return exhausted(
        fmt::format("the queue takes about {:.0f} s, more than the {:.0f} s this "
                    "server lets requests wait",
                    wait, seconds_max_));
  }
  return ok_status();
}

void QueueGauge::entered(int64_t prompt_tokens, double now_seconds) {
  if (outstanding_++ == 0) busy_since_ = now_seconds;
  queued_tokens_ += prompt_tokens;
}

void QueueGauge::started(int64_t prompt_tokens, double now_seconds) {
  queued_tokens_ -= prompt_tokens;
  prompt_tokens_.add(static_cast<double>(prompt_tokens), busy_seconds(now_seconds));
}

void QueueGauge::left_unstarted(int64_t prompt_tokens) { queued_tokens_ -= prompt_tokens; }

void QueueGauge::ended(double now_seconds) {
  const double busy = busy_seconds(now_seconds);
  ends_.add(1, busy);
  if (--outstanding_ == 0) busy_before_ = busy;
}

double QueueGauge::drain_seconds(double now_seconds) const {
  const double rate = prompt_tokens_.at(busy_seconds(now_seconds));
  return rate > 0 ? static_cast<double>(queued_tokens_) / rate : 0;
}

double QueueGauge::retry_seconds(int64_t prompt_tokens, double now_seconds) const {
  double seconds = 0;
  const double busy = busy_seconds(now_seconds);
  const double ends = ends_.at(busy), tokens = prompt_tokens_.at(busy);
  if (outstanding_ >= requests_max_ && ends > 0) {
    seconds = static_cast<double>(outstanding_ + 1 - requests_max_) / ends;
  }
  const int64_t excess = queued_tokens_ + prompt_tokens - tokens_max_;
  if (tokens_max_ > 0 && excess > 0 && tokens > 0) {
    seconds = std::max(seconds, static_cast<double>(excess) / tokens);
  }
  if (seconds_max_ > 0) seconds = std::max(seconds, drain_seconds(now_seconds) - seconds_max_);
  return std::clamp(seconds, kRetrySecondsMin, kRetrySecondsMax);
}

}  // namespace headrace
