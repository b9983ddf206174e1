#include "tensor/thread_pool.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/check.h"
#include "tensor/cpu_features.h"

namespace headrace {
namespace {

// About 100 us of spinning at some 40 cycles a pause: the gap between two ops of a step is below
// 20 us, the gap between two requests is far above.
constexpr int kSpins = 4000;

// CPUs by cgroup quota, or a large number when there is none.
double quota_cpus() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) return std::stod(quota) / period;
  return 1e9;
}

}  // namespace

ThreadPool::ThreadPool(int thread_count) : claims_(static_cast<size_t>(thread_count)) {
  CHECK(thread_count >= 1);
  for (int i = 1; i < thread_count; ++i) workers_.emplace_back([this, i] { work(i); });
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
  uint32_t seen = 0;
  for (;;) {
    uint32_t now = epoch_.load(std::memory_order_acquire);
    for (int spins = 0; now == seen && spins < kSpins; ++spins) {
      _mm_pause();
      now = epoch_.load(std::memory_order_acquire);
    }
    if (now == seen) {
      epoch_.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = now;
    if (stop_.load(std::memory_order_relaxed)) return;
    // A claim that succeeds holds the caller in dispatch(), so job_ and body_ are this epoch's.
    if (!claim(share, seen)) continue;
    job_(body_, share);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

int ThreadPool::usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int affine = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const double quota = std::ceil(std::min(quota_cpus(), 4096.0));
  return std::max(1, std::min(affine, static_cast<int>(quota)));
}

}  // namespace headrace
