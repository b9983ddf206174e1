// Ended rows of a static batch (static_policy.h): they are computed with the rest of their batch,
// for nobody, and keep their pages meanwhile. They stand behind all that runs: they take no budget
// and no page that anybody else needs, and where pages are short they are the first to go.
#include <algorithm>

#include "sched/batch_scheduler.h"

namespace headrace {

// Whether its row is computed on when it has ended. (A muted leader has no token to go on from.)
bool BatchScheduler::goes_on_in_batch(const Sequence& sequence) const {
  return policy_->computes_finished_rows() && sequence.is<Decoding>() && !sequence.muted &&
         !sequence.rank.background;
}

// A token for each, beside what others have in this step. A row that is as long as a context may be
// has no next token.
void BatchScheduler::compute_ended_rows(StepPlan& plan) {
  const bool others = std::any_of(candidates_.begin(), candidates_.end(), [](const auto& each) {
    return each.count > 0 && each.sequence->running() && !each.sequence->rank.background;
  });
  if (plan.work.empty() && !others) return;
  for (LeavingSlot& leaving : leaving_) {
    // The last token of the budget is for who joins.
    if (leaving.row == nullptr || budget_left_ <= 1) continue;
    Sequence& row = *leaving.row;
    row.blocks.trim(pool_, row.planned, row.last_step);
    if (row.planned >= options_.max_model_len ||
        supply_.longest_fit(row, 1, free_pages_for(row)) == 0) {
      drop_row(leaving);
      continue;
    }
    Work work{.sequence = row.id,
              .slot = leaving.slot,
              .first = row.planned,
              .count = 1,
              .rows = LogitRows::kLast,
              .samples = true,
              .ended = true,
              .also_sample = {},
              .new_blocks = {}};
    supply_.grow(row, 1, Ticket(plan.step), work.new_blocks, plan.copies);
    --budget_left_;
    load_.add(work);
    ++row.planned;
    ++row.samples_in_flight;
    row.last_step = leaving.last_step = Ticket(plan.step);
    ++plan.token_count;
    plan.work.push_back(std::move(work));
    planned_.push_back(&row);
  }
}

// Its pages go at once (fenced); its slot when its batch has ended.
void BatchScheduler::drop_row(LeavingSlot& leaving) {
  Sequence& row = *std::exchange(leaving.row, nullptr);
  row.blocks.release_all(pool_, row.last_step);
  row.prefix_tokens = 0;
  row.planned = 0;
  row.state = Retiring{};
}

// For its pages. False: there is none.
bool BatchScheduler::drop_an_ended_row() {
  const auto found = std::find_if(leaving_.begin(), leaving_.end(), [](const LeavingSlot& leaving) {
    return leaving.row != nullptr;
  });
  if (found == leaving_.end()) return false;
  drop_row(*found);
  return true;
}

// Their batch has ended.
void BatchScheduler::drop_ended_rows() {
  while (drop_an_ended_row()) {
  }
}

}  // namespace headrace
