// Fork-join over a fixed set of threads, microseconds a call: workers spin for a short while after
// a job, then sleep in the kernel, so that an idle pool uses no CPU. A job has one share a thread;
// the share of a worker that has not come yet (the machine is busy) is taken by the caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tensor/cpu_topology.h"

namespace headrace {

class ThreadPool {
 public:
  // `thread_count` includes the calling thread. REQUIRES: thread_count >= 1
  explicit ThreadPool(int thread_count);
  // Workers are bound to their CPUs from the start, a caller by bind_caller().
  explicit ThreadPool(ThreadPlacement placement);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const { return static_cast<int>(workers_.size()) + 1; }

  // Binds the calling thread to the CPUs of share 0: for a thread that calls run() all its life.
  // Threads that it starts later inherit this. Cheap where it is bound already.
  void bind_caller();
  // The same for a while only, and only where it matters who first touches a page.
  BoundScope bind_caller_here() const {
    return BoundScope(several_nodes() ? placement_.cpus[0] : kAnyCpu);
  }
  // Shares are bound to CPUs of more than one node: memory belongs near the share that reads it.
  bool several_nodes() const { return placement_.several_nodes; }

  // Calls body(thread) once on every thread, 0 being the caller; returns when all are done. What
  // the bodies wrote is visible to the caller. Not reentrant; one caller at a time.
  template <class Body>
  void run(const Body& body) {
    dispatch(&invoke_run<Body>, &body);
  }

  // Splits [0, count) into ranges of `grain` and hands them to whichever thread is free:
  // body(first, last). Order and placement vary, so a body must not depend on them.
  template <class Body>
  void parallel_for(int64_t count, int64_t grain, const Body& body) {
    if (count <= grain || workers_.empty()) {
      if (count > 0) body(int64_t{0}, count);
      return;
    }
    std::atomic<int64_t> next{0};
    run([&](int) {
      for (int64_t first; (first = next.fetch_add(grain, std::memory_order_relaxed)) < count;) {
        body(first, first + grain < count ? first + grain : count);
      }
    });
  }

  // As parallel_for(), but each thread begins with the ranges of its own share of [0, count), the
  // same in every call with this count, and takes others' when these are done: for rows, which then
  // stay in the cache of the core that wrote them.
  template <class Body>
  void parallel_rows(int64_t count, int64_t grain, const Body& body) {
    if (count <= grain || workers_.empty()) {
      if (count > 0) body(int64_t{0}, count);
      return;
    }
    const int64_t ranges = (count + grain - 1) / grain;
    const auto threads = static_cast<size_t>(thread_count());
    for (size_t t = 0; t < threads; ++t) {
      shares_[t].next.store(ranges * static_cast<int64_t>(t) / thread_count(),
                            std::memory_order_relaxed);
      shares_[t].end = ranges * static_cast<int64_t>(t + 1) / thread_count();
    }
    run([&](int thread) {
      for (size_t i = 0; i < threads; ++i) {
        Share& share = shares_[(static_cast<size_t>(thread) + i) % threads];
        for (int64_t r; (r = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;) {
          const int64_t last = (r + 1) * grain;
          body(r * grain, last < count ? last : count);
        }
      }
    });
  }

 private:
  using Job = void (*)(const void* body, int share);
  template <class Body>
  static void invoke_run(const void* body, int share) {
    (*static_cast<const Body*>(body))(share);
  }

  static inline const std::vector<int32_t> kAnyCpu;
  bool bound() const { return !placement_.cpus.empty(); }

  void dispatch(Job job, const void* body);
  void work(int share);
  bool claim(int share, uint32_t epoch);

  // Written by the caller before epoch_ moves, read by workers after.
  Job job_ = nullptr;
  const void* body_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<int32_t> running_{0};  // shares of this epoch not yet done
  // The epoch in which each share was last taken: it goes from e - 1 to e once.
  struct alignas(64) Claim {
    std::atomic<uint32_t> epoch{0};
  };
  std::vector<Claim> claims_;
  // Of parallel_rows(): ranges that nobody has taken yet.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::vector<Share> shares_;
  std::atomic<bool> stop_{false};
  const ThreadPlacement placement_;
  std::thread::id bound_caller_;
  std::vector<std::thread> workers_;
};

}  // namespace headrace
