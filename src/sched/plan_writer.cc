#include "sched/plan_writer.h"

#include <algorithm>
#include <utility>

namespace headrace {

void PlanWriter::write(StepDraft& draft) {
  const auto write_all = [&](auto&& wanted) {
    for (DraftEntry& candidate : draft.candidates) {
      if (candidate.count > 0 && candidate.sequence->running() && wanted(*candidate.sequence)) {
        write_work(draft, candidate);
        candidate.count = 0;
      }
    }
  };
  write_all([](const Sequence& sequence) { return sequence.is<Decoding>(); });
  write_ended_rows(draft);
  write_all([](const Sequence& sequence) { return sequence.is<Prefilling>(); });
}

void PlanWriter::write_admission(StepDraft& draft, const Sequence& sequence,
                                 std::vector<TokenId> tokens) const {
  draft.plan.admitted.push_back({.sequence = sequence.id,
                                 .slot = sequence.slot(),
                                 .choice = sequence.request->first_choice + sequence.choice,
                                 .request = sequence.request,
                                 .tokens = std::move(tokens),
                                 .blocks = sequence.blocks.table(),
                                 .checkpoint = sequence.checkpoint});
}

// The slot begins anew, before what this step adds to its pages. Those that a window has passed
// since may be another's by now.
void PlanWriter::write_moved_beam(StepDraft& draft, Sequence& beam) const {
  Decoding& decoding = beam.decoding();
  std::vector<GroupBlocks> pages = *std::exchange(decoding.moved_to, std::nullopt);
  decoding.untold = false;
  for (GroupBlocks& group : pages) {
    const auto size = static_cast<int32_t>(group.blocks.size());
    const int32_t passed =
        std::clamp(beam.blocks.first_held(group.group) - group.first_index, 0, size);
    group.blocks.erase(group.blocks.begin(), group.blocks.begin() + passed);
    group.first_index += passed;
  }
  write_admission(draft, beam, beam.known_tokens());
  draft.plan.admitted.back().blocks = std::move(pages);
}

void PlanWriter::write_work(StepDraft& draft, DraftEntry& candidate) {
  StepPlan& plan = draft.plan;
  Sequence& sequence = *candidate.sequence;
  // Where it stays: a step has one for each of hundreds of sequences.
  Work& work = plan.work.emplace_back();
  work.sequence = sequence.id;
  work.slot = sequence.slot();
  work.first = sequence.extent.most;
  work.count = candidate.count;
  work.new_blocks = std::move(candidate.new_blocks);
  if (candidate.proposal_count() > 0) {
    work.proposed = std::move(candidate.proposed);
    work.drafted = candidate.drafted;
    work.form = std::move(candidate.form);
  }
  const bool moved = sequence.is<Decoding>() && sequence.decoding().moved_to;
  if (moved) write_moved_beam(draft, sequence);
  supply_.plan_saves(sequence, work);
  sequence.extent.plan(work.count, work.proposal_count());
  sequence.last_step = Ticket(plan.step);
  sequence.waits_since = plan.step;
  sequence.awaits_pages_since = 0;
  plan.token_count += work.count;

  const auto* prefilling = std::get_if<Prefilling>(&sequence.state);
  const bool last = prefilling == nullptr || sequence.extent.most == prefilling->target;
  work.samples = last && !sequence.muted && sequence.request->sampling.max_tokens > 0;
  if (last && prefilling != nullptr && sequence.request->sampling.max_tokens > 0) {
    sequence.state = Decoding{prefilling->slot};
    // What a search makes of this row says how its beams start.
    if (!sequence.request->beams) start_followers(draft, sequence, work);
  }
  if (work.samples) ++sequence.samples_in_flight;
  if (work.proposal_count() > 0) {
    work.rows = LogitRows::kVerify;
  } else if (wants_prompt_logprobs(sequence, work)) {
    work.rows = LogitRows::kAll;
  } else if (work.samples || !work.also_sample.empty()) {
    work.rows = LogitRows::kLast;
  }
  draft.load.add(work);
  draft.sequences.push_back(&sequence);
  if (sequence.muted && last && sequence.followers.empty()) table_.retire(sequence);
}

// They share its pages and sample their first token from the same row.
void PlanWriter::start_followers(StepDraft& draft, Sequence& leader, Work& work) {
  for (Sequence* follower : leader.followers) {
    table_.start_follower(leader, *follower, draft.plan.step);
    write_admission(draft, *follower, follower->request->prompt);
    work.also_sample.push_back({follower->id, follower->slot()});
  }
  leader.followers.clear();
}

// The row of token p scores prompt token p + 1; what was emitted before a preemption is not again.
bool PlanWriter::wants_prompt_logprobs(const Sequence& sequence, const Work& work) const {
  if (sequence.request->sampling.prompt_logprobs < 0) return false;
  if (sequence.choice != 0 || sequence.muted) return false;
  const int32_t last_scored = std::min(work.first + work.count, sequence.prompt_length() - 1);
  return last_scored > work.first && last_scored >= sequence.entry->prompt_scored;
}

// Ended rows of a static batch (static_policy.h): a token for each, beside what others have in this
// step. They take no budget and no page that another sequence needs.
void PlanWriter::write_ended_rows(StepDraft& draft) {
  const auto& candidates = draft.candidates;
  const bool others = std::any_of(candidates.begin(), candidates.end(), [](const auto& each) {
    return each.count > 0 && each.sequence->running() && !each.sequence->rank.background;
  });
  if (draft.plan.work.empty() && !others) return;
  for (LeavingSlot& leaving : table_.ended_rows().slots()) {
    // The last token of the budget is for a sequence that joins.
    if (leaving.row != nullptr && draft.budget.tokens_left > 1) write_ended_row(draft, leaving);
  }
}

// A row that is as long as a context may be has no next token.
void PlanWriter::write_ended_row(StepDraft& draft, LeavingSlot& leaving) {
  StepPlan& plan = draft.plan;
  Sequence& row = *leaving.row;
  if (!row.extent.known()) return;  // it ended while its proposals were in flight
  row.blocks.trim(pool_, row.extent.most, row.last_step);
  if (row.extent.most >= options_.max_model_len ||
      supply_.longest_fit(row, 1, supply_.free_pages_for(row)) == 0) {
    return table_.ended_rows().drop(leaving);
  }
  Work work{.sequence = row.id,
            .slot = leaving.slot,
            .first = row.extent.most,
            .count = 1,
            .rows = LogitRows::kLast,
            .samples = true,
            .ended = true,
            .proposed = {},
            .also_sample = {},
            .new_blocks = {}};
  supply_.grow(row, 1, Ticket(plan.step), work.new_blocks, plan.copies);
  --draft.budget.tokens_left;
  draft.budget.load.add(work);
  draft.load.add(work);
  row.extent.plan(1, 0);
  ++row.samples_in_flight;
  row.last_step = leaving.last_step = Ticket(plan.step);
  ++plan.token_count;
  plan.work.push_back(std::move(work));
  draft.sequences.push_back(&row);
}

}  // namespace headrace
