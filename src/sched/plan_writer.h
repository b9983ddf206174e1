// Writes the tokens chosen for each sequence into the plan, and moves the sequence on: how far it
// is planned, whether it decodes from now on, which choices start with it.
#pragma once

#include "kv/block_pool.h"
#include "sched/page_supply.h"
#include "sched/scheduler.h"
#include "sched/sequence_table.h"
#include "sched/step_draft.h"

namespace headrace {

class PlanWriter {
 public:
  // All outlive this object.
  PlanWriter(const SchedulerOptions& options, BlockPool& pool, PageSupply& supply,
             SequenceTable& table)
      : options_(options), pool_(pool), supply_(supply), table_(table) {}

  // The candidates that have tokens and pages: decodes first. A prompt's last chunk starts the
  // other choices of its request.
  void write(StepDraft& draft);
  // Tells the device of a sequence that has a slot from this step on.
  void write_admission(StepDraft& draft, const Sequence& sequence,
                       std::vector<TokenId> tokens) const;
  // REQUIRES: its tokens have their pages
  void write_work(StepDraft& draft, DraftEntry& candidate);

 private:
  void write_moved_beam(StepDraft& draft, Sequence& beam) const;
  void start_followers(StepDraft& draft, Sequence& leader, Work& work);
  bool wants_prompt_logprobs(const Sequence& sequence, const Work& work) const;
  void write_ended_rows(StepDraft& draft);
  void write_ended_row(StepDraft& draft, LeavingSlot& leaving);

  const SchedulerOptions& options_;
  BlockPool& pool_;
  PageSupply& supply_;
  SequenceTable& table_;
};

}  // namespace headrace
