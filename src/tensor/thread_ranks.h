// ThreadRanks: a group whose ranks are threads of this process, which read each other's memory.
// Sums are added in the order of the ranks.
#pragma once

#include <memory>

#include "tensor/communicator.h"

namespace headrace {

class ThreadRanks {
 public:
  // REQUIRES: count >= 1
  explicit ThreadRanks(int count);
  ~ThreadRanks();
  // Of rank `rank`, for the one thread that computes it. Lives as long as the group. A thread that
  // waits for others spins for some microseconds, then sleeps.
  Communicator& rank(int rank) const;

 private:
  class Shared;
  class Rank;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<Rank[]> ranks_;
};

// How often one of `threads` threads that wait for each other looks before it sleeps: for some
// microseconds, where each has a CPU.
int spins_of(int threads);
}  // namespace headrace
