// The scheduler behind scheduler.h: continuous batching with chunked prefill. batch_scheduler.cc is
// its main line, plan() and apply(); what the phases know is behind them:
//
//   SequenceTable   the sequences that wait, run and leave, and each change of state
//   StepPace        how long steps take
//   Displacement    which sequence gives way to which, and what that may cost
//   Promotion       sequences that waited too long go to the front
//   Admitter        which waiting sequence joins
//   TokenChooser    how many tokens each sequence gets
//   BackgroundWork  what background requests get of a step
//   PageSupply      pages and prefixes that are there
//   PageSecurer     pages for what runs
//   PlanWriter      the plan
//   Swapper         pages that change tiers beside the step
//   ResultReader    what a step brought
//
// Why it always goes on: the oldest running sequence (the first by rank) is never preempted for
// another that runs and may take the pages of all others, and check_request() let in only requests
// that fit the pool alone. While the oldest waits for pages of steps in flight no sequence behind
// it takes one, so it has them when those steps were applied. The sequence that the policy names
// joins before any other; where that may starve one, it is promoted to the front.
//
// Background requests have a queue of their own. They join only when no live request waits, rank
// behind all live ones, and give slots and pages to any of them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "sched/admission.h"
#include "sched/admitter.h"
#include "sched/background_work.h"
#include "sched/displacement.h"
#include "sched/page_securer.h"
#include "sched/page_supply.h"
#include "sched/plan_writer.h"
#include "sched/promotion.h"
#include "sched/queue_policy.h"
#include "sched/result_reader.h"
#include "sched/scheduler.h"
#include "sched/scheduler_audit.h"
#include "sched/sequence_table.h"
#include "sched/step_draft.h"
#include "sched/step_pace.h"
#include "sched/swapper.h"
#include "sched/token_chooser.h"

namespace headrace {

class BatchScheduler final : public Scheduler {
 public:
  // REQUIRES: check_options(options).ok()
  BatchScheduler(SchedulerOptions options, std::unique_ptr<QueuePolicy> policy,
                 std::shared_ptr<DraftSource> drafts);

  Status check(const Request& request) const override;
  Status add(Request request) override;
  bool cancel(RequestId request) override;
  bool cancel(RequestId request, int32_t choice) override;
  bool has_work() const override { return !table_.empty(); }
  StepPlan plan() override;
  std::vector<Emission> apply(const StepPlan& plan, const StepResult& result) override;
  PrefixCache* prefix_cache() override { return cache_.get(); }
  SchedulerStats stats() const override;
  KvWaste kv_waste() const override { return audit().kv_waste(); }
  Status check_invariants() const override { return audit().check(); }

 private:
  // plan(), in order.
  void renew_reservations();
  bool waits_for_proposals() const;
  StepDraft begin_draft();
  void draft_step(StepDraft& draft);
  std::optional<StepTerms> looser_terms(const StepDraft& draft) const;
  StepPlan submit(StepDraft& draft);

  // draft_step() at its end.
  void admit_waiting(StepDraft& draft);
  Sequence* name_next(StepDraft& draft);
  void admit(StepDraft& draft, Sequence& head, const PrefixMatch& hit);
  void write_first_chunk(StepDraft& draft, Sequence& head);
  void resume_beams(StepDraft& draft, Sequence& first);

  SchedulerAudit audit() const { return {options_, pool_, cache_.get(), supply_, table_}; }

  const SchedulerOptions options_;
  const std::unique_ptr<QueuePolicy> policy_;
  BlockPool pool_;
  std::unique_ptr<PrefixCache> cache_;  // null: off
  AdmissionControl admission_;
  PageSupply supply_;
  SequenceTable table_;
  StepPace pace_;
  Displacement displacement_;
  Promotion promotion_;
  Admitter admitter_;
  BackgroundWork background_;
  PageSecurer securer_;
  Proposer proposer_;
  TokenChooser chooser_;
  PlanWriter writer_;
  ResultReader reader_;
  Swapper swapper_;

  // A submitted step, and when it was planned.
  struct InFlight {
    uint64_t step = 0;
    double planned_seconds = 0;
    StepLoad load;
    std::vector<Sequence*> sequences;  // of its works, in their order; it keeps them alive
  };
  std::deque<InFlight> in_flight_;
  uint64_t next_step_ = 1;
  // Empty, with the memory that earlier steps took: the next draft's.
  std::vector<DraftEntry> spare_candidates_;
  std::vector<Sequence*> spare_sequences_;
};

}  // namespace headrace
