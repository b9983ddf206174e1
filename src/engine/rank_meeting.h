// RankMeeting: where the threads of ranks agree on a number that each has measured.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>

namespace headrace {

class RankMeeting {
 public:
  explicit RankMeeting(int ranks) : ranks_(ranks) {}

  // The largest of what all ranks bring. Each calls it once a meeting, on a thread of its own, and
  // waits for the others. Infinity: one of them has left.
  double largest(double own) {
    std::unique_lock lock(mutex_);
    if (left_) return std::numeric_limits<double>::infinity();
    most_ = come_ == 0 ? own : std::max(most_, own);
    const int meeting = meeting_;
    if (++come_ == ranks_) {
      come_ = 0;
      agreed_ = most_;
      ++meeting_;
      met_.notify_all();
    } else {
      met_.wait(lock, [&] { return left_ || meeting_ != meeting; });
      if (meeting_ == meeting) return std::numeric_limits<double>::infinity();
    }
    return agreed_;
  }

  // A rank will come to no more meetings. Nobody waits from now on.
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    met_.notify_all();
  }

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable met_;
  bool left_ = false;
  int come_ = 0, meeting_ = 0;
  double most_ = 0, agreed_ = 0;
};

}  // namespace headrace
