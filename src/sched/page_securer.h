// Pages for the running sequences: each gets the pages of its tokens, the oldest first. Where the
// pool is empty the youngest is preempted.
#pragma once

#include <cstdint>

#include "kv/block_pool.h"
#include "sched/page_supply.h"
#include "sched/scheduler.h"
#include "sched/sequence_table.h"
#include "sched/step_draft.h"

namespace headrace {

class PageSecurer {
 public:
  // All outlive this object.
  PageSecurer(const SchedulerOptions& options, BlockPool& pool, PageSupply& supply,
              SequenceTable& table)
      : options_(options), pool_(pool), supply_(supply), table_(table) {}

  // Keeps the pages that the oldest sequence waited for in an earlier plan, if it did; else none.
  void keep_for_oldest();
  // Takes the pages of each candidate's tokens. A candidate for which they are not enough computes
  // fewer tokens, or none.
  void secure(StepDraft& draft);

 private:
  int32_t secure_for(Sequence& sequence, int32_t count, uint64_t step);
  void drop_proposals_without_pages(StepDraft& draft, DraftEntry& candidate) const;

  const SchedulerOptions& options_;
  BlockPool& pool_;
  PageSupply& supply_;
  SequenceTable& table_;
};

}  // namespace headrace
