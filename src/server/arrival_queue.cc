#include "server/arrival_queue.h"

#include <utility>

namespace headrace {

void ArrivalQueue::push(size_t prompt, const Emission& emission) {
  std::lock_guard lock(mutex_);
  if (!notify_ || overrun_) return;
  tokens_ += tokens_of(emission);
  if (tokens_ > tokens_max_) {
    overrun_ = true;
    arrivals_.clear();
  } else {
    arrivals_.push_back({prompt, clock_.now_seconds(), emission});
  }
  if (!std::exchange(notified_, true)) notify_();
}

bool ArrivalQueue::begin_take() {
  std::lock_guard lock(mutex_);
  notified_ = false;
  return overrun_;
}

std::optional<Arrival> ArrivalQueue::take() {
  std::lock_guard lock(mutex_);
  if (arrivals_.empty()) return std::nullopt;
  std::optional<Arrival> arrival(std::move(arrivals_.front()));
  arrivals_.pop_front();
  tokens_ -= tokens_of(arrival->emission);
  return arrival;
}

void ArrivalQueue::close() {
  std::function<void()> notify;  // destroyed outside the lock: it may hold the last of a connection
  std::lock_guard lock(mutex_);
  notify = std::exchange(notify_, nullptr);
  arrivals_.clear();
}

}  // namespace headrace
