// What the rows of a step say of proposals: which are accepted, and so which tokens a sequence has
// behind the step (sched/draft_source.h has the rule).
#pragma once

#include <span>

#include "engine/batch_builder.h"
#include "engine/slot_table.h"
#include "sched/step_plan.h"

namespace headrace {

// Cuts what was sampled for each sequence behind the first token that is not the one proposed.
// `rows` are those that `result` was made of, in their order.
void cut_rejected(std::span<const LogitRow> rows, StepResult& result);
// Appends to each slot the tokens that its sequence has got.
void append_accepted(std::span<const LogitRow> rows, const StepResult& result, SlotTable& slots);

}  // namespace headrace
