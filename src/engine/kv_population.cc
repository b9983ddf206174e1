#include "engine/kv_population.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"

// Linux 5.14; older headers do not name it.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace headrace {
namespace {

constexpr int64_t kSlice = int64_t{2} << 20;
constexpr uintptr_t kSystemPage = 4096;
// Slices that a step takes ahead at most, however many threads there are.
constexpr size_t kAheadMax = 16;
// Of 40: a tenth of the processor time of who computes beside it.
constexpr int kNice = 10;

}  // namespace

KvPopulation::KvPopulation(KvPoolMemory pool, std::function<int64_t()> free_bytes)
    : pool_(pool),
      free_bytes_(std::move(free_bytes)),
      taken_(static_cast<size_t>((pool.page_bytes * pool.page_count + kSlice - 1) / kSlice)),
      left_(slice_count()),
      thread_([this] { run(); }) {}

KvPopulation::~KvPopulation() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    ++period_;
  }
  wake_.notify_all();
  thread_.join();
}

int64_t KvPopulation::taken_bytes() const {
  return (slice_count() - left_.load(std::memory_order_acquire)) * kSlice;
}

// Two threads may take the same slice: the second finds it done.
void KvPopulation::take(int64_t slice) {
  const auto address = reinterpret_cast<uintptr_t>(pool_.begin);
  const int64_t pool_bytes = pool_.page_bytes * pool_.page_count;
  // The pool may begin and end within pages of the system, which are mapped as a whole.
  const uintptr_t from = (address + static_cast<uintptr_t>(slice * kSlice)) / kSystemPage;
  const uintptr_t end =
      address + static_cast<uintptr_t>(std::min((slice + 1) * kSlice, pool_bytes));
  const size_t bytes = (end + kSystemPage - 1) / kSystemPage * kSystemPage - from * kSystemPage;
  if (::madvise(reinterpret_cast<void*>(from * kSystemPage), bytes, MADV_POPULATE_WRITE) != 0) {
    refused_ = true;
  } else if (!taken_[static_cast<size_t>(slice)].exchange(true)) {
    --left_;
  }
}

// ---- the engine thread --------------------------------------------------------------------------

void KvPopulation::begin_step(const StepPlan& plan, ThreadPool& threads) {
  if (complete() || refused_) return;
  if (period_.load(std::memory_order_relaxed) % 2 == 1) {
    {
      std::lock_guard lock(mutex_);
      ++period_;
    }
    wake_.notify_one();
  }
  needed_.clear();
  for (const Admission& admission : plan.admitted) {
    for (const GroupBlocks& group : admission.blocks) {
      for (const BlockId page : group.blocks) need_page(page);
    }
  }
  for (const Work& work : plan.work) {
    for (const GroupBlocks& group : work.new_blocks) {
      for (const BlockId page : group.blocks) need_page(page);
    }
  }
  if (needed_.empty()) return;
  add_slices_ahead(threads.thread_count());
  threads.parallel_for(static_cast<int64_t>(needed_.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) take(needed_[static_cast<size_t>(i)]);
  });
}

void KvPopulation::need_page(BlockId page) {
  const int64_t begin = page.value * pool_.page_bytes;
  const int64_t last = (begin + pool_.page_bytes - 1) / kSlice;
  for (int64_t slice = begin / kSlice; slice <= last; ++slice) {
    if (taken_[static_cast<size_t>(slice)].load(std::memory_order_relaxed)) continue;
    if (needed_.empty() || needed_.back() != slice) needed_.push_back(slice);
  }
}

void KvPopulation::add_slices_ahead(int thread_count) {
  std::sort(needed_.begin(), needed_.end());
  needed_.erase(std::unique(needed_.begin(), needed_.end()), needed_.end());
  const size_t share = std::min(static_cast<size_t>(thread_count), kAheadMax);
  for (int64_t slice = needed_.back() + 1; slice < slice_count(); ++slice) {
    if (needed_.size() % share == 0) return;
    if (!taken_[static_cast<size_t>(slice)].load(std::memory_order_relaxed)) {
      needed_.push_back(slice);
    }
  }
}

void KvPopulation::idle() {
  if (complete() || period_.load(std::memory_order_relaxed) % 2 == 1) return;
  {
    std::lock_guard lock(mutex_);
    ++period_;
  }
  wake_.notify_one();
}

// ---- the thread of low priority -----------------------------------------------------------------

void KvPopulation::run() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
  const int64_t free_bytes_min = free_bytes_() / 2;
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_ && next_ < slice_count()) {
    wake_.wait(lock, [&] { return stopping_ || period_ % 2 == 1; });
    if (stopping_) break;
    const uint64_t period = period_;
    const auto changed = [&] { return period_ != period; };
    if (wake_.wait_for(lock, std::chrono::duration<double>(kQuietSeconds), changed)) continue;
    lock.unlock();
    const bool more = take_while_idle(period, free_bytes_min);
    lock.lock();
    if (!more) break;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  log_info("{} of {} MiB of memory for keys and values are taken, {:.1f} s after the start",
           taken_bytes() >> 20, slice_count() * kSlice >> 20, seconds.count());
}

bool KvPopulation::take_while_idle(uint64_t period, int64_t free_bytes_min) {
  for (; next_ < slice_count() && period_.load(std::memory_order_relaxed) == period; ++next_) {
    if (taken_[static_cast<size_t>(next_)].load(std::memory_order_relaxed)) continue;
    if (free_bytes_() - kSlice < free_bytes_min) return false;
    take(next_);
    if (refused_) return false;
  }
  return true;
}

}  // namespace headrace
