#include "apps/signal_watch.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

namespace headrace {
namespace {

// SIGUSR2 wakes the watching thread when the watch ends.
sigset_t watched_signals(const std::vector<int>& others) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGUSR2);
  for (int signal : others) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

SignalWatch::SignalWatch(const std::vector<int>& others) : signals_(watched_signals(others)) {
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread([this] { watch(); });
}

SignalWatch::~SignalWatch() {
  stopping_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
}

void SignalWatch::set_handler(Handler handler) {
  std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
}

void SignalWatch::watch() {
  int signal = 0;
  while (sigwait(&signals_, &signal) == 0 && !stopping_) {
    if (signal == SIGUSR2) continue;
    std::lock_guard lock(mutex_);
    if (!handler_) _exit(128 + signal);
    handler_(signal);
  }
}

}  // namespace headrace
