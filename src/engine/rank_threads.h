// RankThreads: a thread for each rank of a model that is split (models/shard.h). The caller's is
// rank 0's; the others wait between calls.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace headrace {

class RankThreads {
 public:
  // REQUIRES: ranks >= 1
  explicit RankThreads(int ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls work(rank) for every rank, each on its own thread and always the same, at once; returns
  // when all are done. One caller at a time. Unlike the shares of a ThreadPool, calls may wait for
  // each other.
  void run(const std::function<void(int rank)>& work);

 private:
  void serve(int rank);

  const int spins_;
  const std::function<void(int rank)>* work_ = nullptr;  // written before calls_ moves
  alignas(64) std::atomic<uint32_t> calls_{0};
  alignas(64) std::atomic<uint32_t> running_{0};  // ranks of this call that are not done
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace headrace
