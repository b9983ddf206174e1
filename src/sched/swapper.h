// Swapping ahead (FastServe, Wu et al. 2023): keys and values of sequences that gave way go to the
// tier below before their pages are needed, and come back before their turn, beside steps that need
// neither. So a step finds unused pages without storing anything first, and a sequence that joins
// finds its pages in the pool. Who is next is told by the estimated next scheduled time: the least
// of the time until it is promoted and the time until those before it have run.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "sched/page_supply.h"
#include "sched/queue_policy.h"
#include "sched/scheduler.h"
#include "sched/sequence_table.h"

namespace headrace {

class Swapper {
 public:
  // All outlive this object. `cache` null: nothing is kept.
  Swapper(const SchedulerOptions& options, const QueuePolicy& policy, const BlockPool& pool,
          PrefixCache* cache, PageSupply& supply, const SequenceTable& table);

  // A step took so long.
  void note_step(double seconds);
  // Moves pages beside plan `step`, whose work has its pages.
  void move_ahead(uint64_t step);

 private:
  // A sequence that gave way, and the seconds until its turn.
  struct Turn {
    double seconds = 0;
    Sequence* sequence = nullptr;
    friend bool operator<(const Turn& a, const Turn& b) {
      return a.seconds != b.seconds ? a.seconds < b.seconds : a.sequence->rank < b.sequence->rank;
    }
  };
  void estimate_turns(uint64_t step);
  double seconds_to_run(const Sequence& sequence) const;
  const Turn* next_to_load(int32_t& pages) const;

  const SchedulerOptions& options_;
  const QueuePolicy& policy_;
  const BlockPool& pool_;
  PrefixCache* const cache_;
  PageSupply& supply_;
  const SequenceTable& table_;
  const int32_t pages_of_a_step_;  // the most that steps in flight take
  double step_seconds_ = 0;        // in the mean, of late
  uint64_t pins_seen_ = 0;         // of PageSupply::pin_changes(), in turns_
  std::vector<Turn> turns_;        // the next first
};

}  // namespace headrace
