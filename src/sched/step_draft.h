// A step under construction. plan() makes one and passes it through its phases: tokens are chosen
// for the candidates under the budget, pages are secured for them, and what has both becomes work
// of the plan.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sched/draft_form.h"
#include "sched/queue_policy.h"
#include "sched/sequence.h"
#include "sched/step_cost.h"
#include "sched/step_plan.h"

namespace headrace {

// What a draft keeps to.
struct StepTerms {
  StepShape shape = StepShape::kMixed;
  bool other_shape_failed = false;  // a draft of the other pure shape brought no work
  bool background_pauses = true;    // while a live request joins
  bool keeps_pages = true;          // for the one that joins next
};

// What the step may still hold.
struct StepBudget {
  int32_t tokens_left = 0;
  int32_t crowd_left = 0;  // of them, for prompts of tenants that crowd (QueuePolicy::crowds)
  double seconds_max = std::numeric_limits<double>::infinity();  // of a step with decodes
  StepLoad load;                                                 // of the work chosen so far

  void take(const Sequence& sequence, int32_t first, int32_t count) {
    if (count == 0) return;
    tokens_left -= count;
    if (sequence.is<Decoding>()) {
      for (int32_t i = 0; i < count; ++i) load.add_decode(first + i);
    } else {
      load.add_prompt(first, count);
    }
  }
};

// A running sequence and what the draft gives it.
struct DraftEntry {
  Sequence* sequence = nullptr;
  int32_t count = 0;     // tokens, proposals among them
  TokenTree proposed{};  // the last of them
  int32_t drafted = 0;   // or so many, which the runner proposes
  DraftForm form{};      // of these
  std::vector<GroupBlocks> new_blocks{};

  int32_t proposal_count() const { return proposed.size() + drafted; }
};

struct StepDraft {
  StepTerms terms;
  std::vector<DraftEntry> candidates;  // what ran when tokens were chosen, by rank
  StepBudget budget;
  StepPlan plan;
  std::vector<Sequence*> sequences;  // of plan.work, in its order
  StepLoad load;                     // of plan.work
  int32_t joined = 0;                // requests that were admitted
  bool background_paused = false;    // it had work, and a live request joins
};

}  // namespace headrace
