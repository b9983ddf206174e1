// RankMeeting: where the threads of ranks agree on a number that each has measured.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace headrace {

class RankMeeting {
 public:
  explicit RankMeeting(int ranks) : ranks_(ranks) {}

  // The largest of what all ranks bring. Each calls it once a meeting, on a thread of its own, and
  // waits for the others.
  double largest(double own) {
    std::unique_lock lock(mutex_);
    most_ = come_ == 0 ? own : std::max(most_, own);
    const int meeting = meeting_;
    if (++come_ == ranks_) {
      come_ = 0;
      agreed_ = most_;
      ++meeting_;
      met_.notify_all();
    } else {
      met_.wait(lock, [&] { return meeting_ != meeting; });
    }
    return agreed_;
  }

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable met_;
  int come_ = 0, meeting_ = 0;
  double most_ = 0, agreed_ = 0;
};

}  // namespace headrace
