// What the rows of a step say of proposals: which are accepted, and so which tokens a sequence has
// behind the step (sched/draft_source.h has the rule).
#pragma once

#include <span>
#include <vector>

#include "base/rng.h"
#include "engine/batch_builder.h"
#include "engine/slot_table.h"
#include "sched/step_plan.h"

namespace headrace {

// Which proposals are accepted: those that were sampled or, with a rate of 0 to 1, each with this
// chance (ProposalOptions::synthetic_acceptance). One thread.
class AcceptanceRule {
 public:
  explicit AcceptanceRule(double synthetic_rate) : synthetic_rate_(synthetic_rate) {}
  // The token that stands where `proposed` was: it or the one sampled.
  TokenId decide(TokenId proposed, TokenId sampled) {
    if (synthetic_rate_ < 0) return sampled;
    return rng_.uniform() < synthetic_rate_ ? proposed : sampled;
  }

 private:
  const double synthetic_rate_;
  Rng rng_{1};
};

// A proposal that was accepted and does not lie where it lay in a chain: places behind the tokens
// that were known before the step.
struct PathMove {
  SlotId slot;
  int32_t from = 0, to = 0;  // to < from
};

// Leaves of what was sampled for each sequence what is on the accepted path: from its first row to
// that of the proposal that was sampled there, and so on, to the first token that was not proposed.
// `rows` are those that `result` was made of, in their order. The moves are those of trees, each
// sequence's in ascending order, in which no place is written that is still to be moved.
std::vector<PathMove> cut_rejected(std::span<const LogitRow> rows, AcceptanceRule& rule,
                                   StepResult& result);
// Appends to each slot the tokens that its sequence has got.
void append_accepted(std::span<const LogitRow> rows, const StepResult& result, SlotTable& slots);
// Behind append_accepted: which forms an end of the answer has ended.
void note_ended_forms(std::span<const LogitRow> rows, std::span<const TokenId> end_ids,
                      const SlotTable& slots, StepResult& result);

}  // namespace headrace
