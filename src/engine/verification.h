// What the rows of a step say of proposals: which are accepted, and so which tokens a sequence has
// behind the step (sched/draft_source.h has the rule).
#pragma once

#include <span>

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

// Cuts what was sampled for each sequence behind the first token that is not the one proposed.
// `rows` are those that `result` was made of, in their order.
void cut_rejected(std::span<const LogitRow> rows, AcceptanceRule& rule, StepResult& result);
// Appends to each slot the tokens that its sequence has got.
void append_accepted(std::span<const LogitRow> rows, const StepResult& result, SlotTable& slots);
// Behind append_accepted: which forms an end of the answer has ended.
void note_ended_forms(std::span<const LogitRow> rows, std::span<const TokenId> end_ids,
                      const SlotTable& slots, StepResult& result);

}  // namespace headrace
