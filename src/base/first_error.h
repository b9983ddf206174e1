// The first error of several, for whoever asks later. Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "base/status.h"

namespace headrace {

class FirstError {
 public:
  // Where there was none before. `error` may be ok.
  void add(Status error) {
    if (error.ok()) return;
    const std::lock_guard lock(mutex_);
    if (any_) return;
    first_ = std::move(error);
    any_ = true;
  }
  bool any() const { return any_; }
  // ok: none.
  Status first() const {
    if (!any_) return ok_status();
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  Status first_;
  std::atomic<bool> any_{false};
};

}  // namespace headrace
