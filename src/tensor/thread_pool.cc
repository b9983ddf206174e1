#include "tensor/thread_pool.h"

#include <immintrin.h>

#include <utility>

#include "base/check.h"
#include "tensor/cpu_features.h"
#include "tensor/spin_wait.h"

namespace headrace {
namespace {

// About 100 us of spinning at some 40 cycles a pause: the gap between two ops of a step is below
// 20 us, the gap between two requests is far above.
constexpr int kSpins = 4000;

}  // namespace

ThreadPool::ThreadPool(int thread_count)
    : ThreadPool(ThreadPlacement{.thread_count = thread_count}) {}

ThreadPool::ThreadPool(ThreadPlacement placement)
    : claims_(static_cast<size_t>(placement.thread_count)),
      shares_(static_cast<size_t>(placement.thread_count)),
      placement_(std::move(placement)) {
  CHECK(placement_.thread_count >= 1);
  for (int i = 1; i < placement_.thread_count; ++i) workers_.emplace_back([this, i] { work(i); });
}

void ThreadPool::bind_caller() {
  if (!bound() || bound_caller_ == std::this_thread::get_id()) return;
  bound_caller_ = std::this_thread::get_id();
  bind_this_thread(placement_.cpus.front());
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::claim(int share, uint32_t epoch) {
  uint32_t before = epoch - 1;
  return claims_[static_cast<size_t>(share)].epoch.compare_exchange_strong(
      before, epoch, std::memory_order_acq_rel);
}

void ThreadPool::dispatch(Job job, const void* body) {
  if (workers_.empty()) return job(body, 0);
  job_ = job;
  body_ = body;
  running_.store(static_cast<int32_t>(workers_.size()), std::memory_order_relaxed);
  const uint32_t epoch = epoch_.fetch_add(1, std::memory_order_release) + 1;
  epoch_.notify_all();
  job(body, 0);
  for (int share = 1; share < thread_count(); ++share) {
    if (!claim(share, epoch)) continue;
    job(body, share);
    running_.fetch_sub(1, std::memory_order_relaxed);
  }
  // What is left was begun by others; give the core away if they were descheduled.
  for (int spins = 0; running_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::work(int share) {
  flush_denormals_on_this_thread();
  if (bound()) bind_this_thread(placement_.cpus[static_cast<size_t>(share)]);
  uint32_t seen = 0;
  for (;;) {
    const uint32_t now = spin_wait(epoch_, seen, kSpins);
    if (now == seen) continue;
    seen = now;
    if (stop_.load(std::memory_order_relaxed)) return;
    // A claim that succeeds holds the caller in dispatch(), so job_ and body_ are this epoch's.
    if (!claim(share, seen)) continue;
    job_(body_, share);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace headrace
