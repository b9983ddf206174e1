// Threads for what takes long on a request: reading JSON, templates, tokenizers. Connections,
// streams, /health and /metrics are served by others and never wait for them.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"

namespace headrace {

// Any thread, but for start() and stop().
class TextPool {
 public:
  // `waiting_max`: tasks that wait for a thread.
  explicit TextPool(size_t waiting_max) : tasks_(waiting_max) {}
  ~TextPool() { stop(); }
  TextPool(const TextPool&) = delete;

  void start(int thread_count);
  // Runs `task` soon. False: too many wait, or after stop(); the task is dropped. What a task
  // throws is logged.
  bool run(std::function<void()> task) { return tasks_.try_push(std::move(task)); }
  // Waits for what runs; what waits is dropped. Nothing runs after it.
  void stop();

 private:
  void loop();

  BoundedQueue<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
};

}  // namespace headrace
