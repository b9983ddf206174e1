// Pages for what runs: each gets those of its tokens, the oldest first, and takes them from the
// youngest where the pool is empty.
#pragma once

#include <cstdint>

#include "kv/block_pool.h"
#include "sched/admission.h"
#include "sched/page_supply.h"
#include "sched/scheduler.h"
#include "sched/sequence_table.h"
#include "sched/step_draft.h"

namespace headrace {

class PageSecurer {
 public:
  // All outlive this object.
  PageSecurer(const SchedulerOptions& options, BlockPool& pool, PageSupply& supply,
              AdmissionControl& admission, SequenceTable& table)
      : options_(options), pool_(pool), supply_(supply), admission_(admission), table_(table) {}

  // Keeps the pages that the oldest lacks, where it waited for them in an earlier plan; for nobody
  // else.
  void keep_for_oldest();
  // Pages for the tokens of each candidate. A candidate that they do not reach for gets fewer
  // tokens, or none.
  void secure(StepDraft& draft);

 private:
  int32_t secure_for(Sequence& sequence, int32_t count, uint64_t step);

  const SchedulerOptions& options_;
  BlockPool& pool_;
  PageSupply& supply_;
  AdmissionControl& admission_;
  SequenceTable& table_;
};

}  // namespace headrace
