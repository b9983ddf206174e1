#include "server/arrival_queue.h"

#include <utility>

namespace headrace {

void ArrivalQueue::push(size_t prompt, int32_t first_choice, const Emission& emission) {
  std::lock_guard lock(mutex_);
  if (!notify_ || overrun_) return;
  tokens_ += tokens_of(emission);
  if (tokens_ > tokens_max_) {
    overrun_ = true;
    drop_all();
  } else {
    if (taken_ > 32 && 2 * taken_ > arrivals_.size()) {
      arrivals_.erase(arrivals_.begin(), arrivals_.begin() + static_cast<ptrdiff_t>(taken_));
      taken_ = 0;
    }
    arrivals_.push_back({prompt, clock_.now_seconds(), emission});
    arrivals_.back().emission.choice += first_choice;
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
  if (taken_ == arrivals_.size()) return std::nullopt;
  std::optional<Arrival> arrival(std::move(arrivals_[taken_++]));
  if (taken_ == arrivals_.size()) drop_all();
  tokens_ -= tokens_of(arrival->emission);
  return arrival;
}

void ArrivalQueue::close() {
  std::function<void()> notify;  // destroyed outside the lock: it may hold the last of a connection
  std::lock_guard lock(mutex_);
  notify = std::exchange(notify_, nullptr);
  drop_all();
}

void ArrivalQueue::drop_all() {
  arrivals_.clear();
  taken_ = 0;
}

}  // namespace headrace
