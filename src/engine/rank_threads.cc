#include "engine/rank_threads.h"

#include "tensor/spin_wait.h"
#include "tensor/thread_ranks.h"

namespace headrace {

RankThreads::RankThreads(int ranks) : spins_(spins_of(ranks)) {
  for (int rank = 1; rank < ranks; ++rank) threads_.emplace_back([this, rank] { serve(rank); });
}

RankThreads::~RankThreads() {
  stop_.store(true, std::memory_order_relaxed);
  calls_.fetch_add(1, std::memory_order_release);
  calls_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::run(const std::function<void(int rank)>& work) {
  if (threads_.empty()) return work(0);
  work_ = &work;
  running_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
  calls_.fetch_add(1, std::memory_order_release);
  calls_.notify_all();
  work(0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;) {
    left = spin_wait(running_, left, spins_);
  }
}

void RankThreads::serve(int rank) {
  for (uint32_t seen = 0;;) {
    const uint32_t now = spin_wait(calls_, seen, spins_);
    if (now == seen) continue;  // a wake-up without a call
    seen = now;
    if (stop_.load(std::memory_order_relaxed)) return;
    (*work_)(rank);
    running_.fetch_sub(1, std::memory_order_acq_rel);
    running_.notify_one();
  }
}

}  // namespace headrace
