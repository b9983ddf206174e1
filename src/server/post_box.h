// PostBox: tasks handed over in bunches. The engine's thread wakes hundreds of sessions a step; it
// pays for one wake-up of another thread, which takes some of them and leaves the others to the
// next that is free.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"

namespace headrace {

class PostBox {
 public:
  using Task = std::function<void()>;
  using SharedTask = std::shared_ptr<const Task>;
  using RunLater = std::function<void(Task)>;

  // `run_later` runs a task soon, on another thread. Without one, tasks run where they are put.
  explicit PostBox(RunLater run_later = nullptr) : run_later_(std::move(run_later)) {}

  // Tasks that a thread takes at a time: enough that handing on the others costs little, and few
  // enough that two threads end a step together.
  static constexpr size_t kBunch = 16;

  // Any thread. Tasks begin in order; `run_later` is called when there was nothing in the box.
  void put(Task task) { put(std::make_shared<const Task>(std::move(task))); }
  // Of a task that is put again and again nothing is made or copied but a pointer.
  void put(SharedTask task) {
    if (!run_later_) return (*task)();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      if (std::exchange(emptying_, true)) return;
    }
    run_later_([this] { empty(); });
  }

  // Drops what is in the box: before what its tasks refer to goes.
  void clear() {
    const std::lock_guard lock(mutex_);
    tasks_.clear();
    taken_ = 0;
  }

 private:
  // The tasks behind one that throws are those of others.
  static void run(const Task& task) {
    try {
      task();
    } catch (const std::exception& error) {
      log_error("a posted task threw: {}", error.what());
    }
  }

  void empty() {
    std::array<SharedTask, kBunch> tasks;
    size_t count = 0;
    bool more = false;
    {
      const std::lock_guard lock(mutex_);
      while (count < kBunch && taken_ < tasks_.size()) tasks[count++] = std::move(tasks_[taken_++]);
      more = taken_ < tasks_.size();
      // Under load the box may never be empty: what was taken goes when it is half of all.
      if (2 * taken_ >= tasks_.size()) {
        tasks_.erase(tasks_.begin(), tasks_.begin() + static_cast<ptrdiff_t>(taken_));
        taken_ = 0;
      }
      emptying_ = more;
    }
    if (more) run_later_([this] { empty(); });
    for (size_t i = 0; i < count; ++i) run(*tasks[i]);
  }

  const RunLater run_later_;
  std::mutex mutex_;
  std::vector<SharedTask> tasks_;
  size_t taken_ = 0;       // of them, at the front
  bool emptying_ = false;  // run_later was called and has not begun
};

}  // namespace headrace
