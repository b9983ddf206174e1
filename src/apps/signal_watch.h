// SIGINT, SIGTERM and others that are asked for, as calls on a thread of their own, where anything
// may be done.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace headrace {

// What the shell expects of a program that SIGINT ended.
inline constexpr int kInterruptedExitCode = 130;

// Make it before any other thread: threads inherit the blocked signals. One in a process.
class SignalWatch {
 public:
  // Called for each signal, one call at a time.
  using Handler = std::function<void(int signal)>;

  // Until a handler is set, a signal ends the process (exit code 128 + signal). `others`: signals
  // beside the two.
  explicit SignalWatch(const std::vector<int>& others = {});
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // When this returns the handler before is no longer running. nullptr: as at the start. Any
  // thread but the handler's own.
  void set_handler(Handler handler);

 private:
  void watch();

  sigset_t signals_;
  std::mutex mutex_;
  Handler handler_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace headrace
