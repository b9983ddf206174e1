// For tests of which thread of a kernel waits for which: threads that take turns, and barriers as
// the PTX ISA has them (mbarrier).
#pragma once

#include <gtest/gtest.h>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace headrace {

// A thread (or a warp in step), which gives up its turn with co_await Turn().
class Actor {
 public:
  struct promise_type {
    Actor get_return_object() {
      return Actor(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };

  explicit Actor(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Actor(Actor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Actor() {
    if (handle_) handle_.destroy();
  }
  bool done() const { return handle_.done(); }
  void run() { handle_.resume(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};
using Turn = std::suspend_always;

// Actors take turns as it happens, some more seldom than others, and copies on their way land in
// any order: land(copy). False: all wait for each other, or a copy has landed nowhere.
template <class Copy, class Land>
bool run_actors(Rng& rng, std::vector<Actor>& actors, std::vector<Copy>& copies, int patience,
                const Land& land) {
  std::vector<uint64_t> slowness;
  for (size_t i = 0; i < actors.size(); ++i) slowness.push_back(1 + rng.below(30));
  size_t ended = 0;
  for (int turns = 0; turns < patience; ++turns) {
    if (!copies.empty() && rng.below(4) == 0) {
      const auto which = static_cast<std::ptrdiff_t>(rng.below(copies.size()));
      const Copy copy = copies[static_cast<size_t>(which)];
      copies.erase(copies.begin() + which);
      land(copy);
      continue;
    }
    const size_t i = rng.below(actors.size());
    if (rng.below(slowness[i]) != 0 || actors[i].done()) continue;
    actors[i].run();
    if (!actors[i].done()) continue;
    if (++ended == actors.size()) return copies.empty();
  }
  return false;
}

// A phase ends when all have arrived and all expected bytes are there.
class ProtocolBarrier {
 public:
  explicit ProtocolBarrier(int arrivals) : arrivals_(arrivals), pending_(arrivals) {}

  void arrive(int64_t bytes = 0) {
    bytes_ += bytes;
    EXPECT_GE(--pending_, 0);
    end_phase();
  }
  void complete(int64_t bytes) {
    bytes_ -= bytes;
    end_phase();
  }
  bool passes(uint32_t parity) const { return (phase_ & 1) != parity; }

 private:
  void end_phase() {
    if (pending_ != 0 || bytes_ != 0) return;
    ++phase_;
    pending_ = arrivals_;
  }

  const int arrivals_;
  int pending_;
  int64_t bytes_ = 0;  // below 0: copied before they were expected
  uint32_t phase_ = 0;
};

}  // namespace headrace
