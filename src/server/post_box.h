// PostBox: tasks handed over in bunches. The engine's thread wakes hundreds of sessions a step; it
// pays for one wake-up of another thread, which then does the rest.
#pragma once

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

  // Any thread. In order; `run_later` is called when there was nothing in the box.
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
    std::vector<SharedTask> tasks;
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
      emptying_ = false;
    }
    for (const SharedTask& task : tasks) run(*task);
  }

  const RunLater run_later_;
  std::mutex mutex_;
  std::vector<SharedTask> tasks_;
  bool emptying_ = false;  // run_later was called and has not begun
};

}  // namespace headrace
