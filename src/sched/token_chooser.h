// How many tokens of each running sequence a step computes, under its budget of tokens and of time.
//
// Decodes first, a token each; prompt chunks fill the rest. Only a prompt that is the oldest of all
// goes before the decodes, so that no number of them can stop it. A tenant that crowds the machine
// (QueuePolicy::crowds) has its prompts cut, so that a request of another tenant waits only for the
// end of a short step; and while such a request has a prompt to compute, steps hold nothing of the
// crowd but the oldest sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/admitter.h"
#include "sched/background_work.h"
#include "sched/proposer.h"
#include "sched/queue_policy.h"
#include "sched/sequence_table.h"
#include "sched/step_draft.h"
#include "sched/step_pace.h"

namespace headrace {

class TokenChooser {
 public:
  // All outlive this object.
  TokenChooser(const SchedulerOptions& options, const QueuePolicy& policy,
               const SequenceTable& table, const StepPace& pace, const BackgroundWork& background,
               Proposer& proposer, Admitter& admitter)
      : options_(options),
        policy_(policy),
        table_(table),
        pace_(pace),
        background_(background),
        proposer_(proposer),
        admitter_(admitter) {}

  // A fresh budget, the candidates, and their tokens.
  void choose(StepDraft& draft);
  // A prompt's next tokens, from `first` on, under the budget that is left: one for all and, within
  // it, one for tenants that crowd.
  int32_t chunk(const StepBudget& budget, const Sequence& sequence, int32_t first,
                int32_t remaining) const;
  void take(StepBudget& budget, const Sequence& sequence, int32_t first, int32_t count) const;

 private:
  static constexpr double kLongStepsMax = 8;  // that can be saved up

  void choose_decodes(StepDraft& draft, int32_t kept);
  void share_prompt_budget(StepDraft& draft);
  void share_in_turns(StepBudget& budget, std::vector<DraftEntry*>& prompts);
  void give(StepBudget& budget, DraftEntry& prompt, int32_t most) const;
  int32_t budget_for_oldest(StepShape shape) const;
  int64_t cohort_size() const;
  int32_t budget_for_waiting(int32_t budget) const;
  bool live_one_joins(StepShape shape) const;
  double seconds_beside_decodes(const StepDraft& draft);
  bool spend_long_step(const StepBudget& budget);
  bool look_for_other_prompts(uint64_t step);
  int32_t crowd_budget(const StepDraft& draft);

  const SchedulerOptions& options_;
  const QueuePolicy& policy_;
  const SequenceTable& table_;
  const StepPace& pace_;
  const BackgroundWork& background_;
  Proposer& proposer_;
  Admitter& admitter_;
  double long_steps_ = 0;  // that may be taken by tpot_over_share
};

}  // namespace headrace
