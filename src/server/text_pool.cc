#include "server/text_pool.h"

#include <chrono>
#include <exception>

#include "base/log.h"

namespace headrace {

void TextPool::start(int thread_count) {
  for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this] { loop(); });
}

void TextPool::stop() {
  tasks_.close();
  while (tasks_.try_pop()) {
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void TextPool::loop() {
  while (!tasks_.closed()) {
    const auto task = tasks_.pop_for(std::chrono::hours(1));
    if (!task) continue;
    try {
      (*task)();
    } catch (const std::exception& error) {
      log_error("a text task threw: {}", error.what());
    }
  }
}

}  // namespace headrace
