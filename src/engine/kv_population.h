// KvPopulation: has the system find the memory of the KV pool before a step needs it. A page of
// the pool is address space until it is written first. What finding its memory costs is the
// machine's: 0.05 ms a MiB on bare metal, 1.1 to 5 ms in a virtual machine whose host takes unused
// memory back, and there 64 streams lose a fifth of their tokens until the pool has been through
// once. Memory is taken in slices of 2 MiB, a huge page each:
//
//   while idle   by a thread of low priority, from the pool's first page on, as the pool hands them
//                out. It begins when there was nothing to compute for kQuietSeconds and goes on
//                while at least half of the memory that was free at first still is. It stops
//                behind the slice under way when a step comes, and for good when all is taken
//   in a step    what its new pages still lack, and as much ahead as makes a slice for each thread,
//                by all threads at once: they would wait for the one that writes first
//
// A page keeps what it holds: pages may be in use. Of the CPU only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/named.h"
#include "base/status.h"
#include "sched/step_plan.h"
#include "tensor/thread_pool.h"

namespace headrace {

// --kv-populate: memory is found as it is used; while idle and in steps (above); all at start.
enum class KvPopulate : uint8_t { kOff, kIdle, kStart };
inline constexpr Named<KvPopulate> kKvPopulateNames[] = {
    {"off", KvPopulate::kOff},
    {"idle", KvPopulate::kIdle},
    {"start", KvPopulate::kStart},
};

struct KvPoolMemory {
  std::byte* begin = nullptr;  // of page 0
  int64_t page_bytes = 0;
  int32_t page_count = 0;
};

class KvPopulation {
 public:
  static constexpr double kQuietSeconds = 0.05;

  // `free_bytes`: of the machine, as this process may use them; called by the thread of this
  // object. The pool outlives it.
  KvPopulation(KvPoolMemory pool, std::function<int64_t()> free_bytes);
  ~KvPopulation();
  KvPopulation(const KvPopulation&) = delete;
  KvPopulation& operator=(const KvPopulation&) = delete;

  // Says that a step with new pages comes: the thread stops, and the memory of these pages is there
  // when this returns.
  void begin_step(const StepPlan& plan, ThreadPool& threads);
  // Says that there is nothing to compute until the next begin_step().
  void idle();

  int64_t taken_bytes() const;  // any thread
  bool complete() const { return left_.load(std::memory_order_acquire) == 0; }

 private:
  int64_t slice_count() const { return static_cast<int64_t>(taken_.size()); }
  void take(int64_t slice);
  void need_page(BlockId page);
  void add_slices_ahead(int thread_count);
  void run();
  bool take_while_idle(uint64_t period, int64_t free_bytes_min);  // false: no more

  const KvPoolMemory pool_;
  const std::function<int64_t()> free_bytes_;
  std::vector<std::atomic<bool>> taken_;  // [slices]
  std::atomic<int64_t> left_;             // slices not taken
  std::atomic<bool> refused_{false};      // the system cannot (Linux before 5.14), or has no more
  std::vector<int64_t> needed_;           // slices of the step that begins

  std::mutex mutex_;
  std::condition_variable wake_;
  // Odd: idle. Each begin and end of an idle time is one more. Written under mutex_.
  std::atomic<uint64_t> period_{0};
  bool stopping_ = false;
  int64_t next_ = 0;  // slice of the thread

  std::thread thread_;
};

}  // namespace headrace
