#include "sched/page_securer.h"

namespace headrace {

// Pages that were fenced when the oldest waited for them come free within steps_in_flight_max
// plans. They are there then because no sequence behind it may take them, in steps of whatever
// shape.
void PageSecurer::keep_for_oldest() {
  supply_.keep_for_nobody();
  if (table_.running().empty()) return;
  const Sequence& oldest = table_.running().oldest_to_go_on();
  if (oldest.awaits_pages_since == 0) return;
  // The fewest tokens that a step can compute of it.
  const bool whole = oldest.is<Prefilling>() && !options_.chunked_prefill;
  const int32_t tokens = whole ? oldest.unplanned_prompt() : 1;
  supply_.keep_for(oldest.rank, supply_.pages_needed(oldest, tokens));
}

// Oldest first: a victim is younger than the sequence that needs its pages, so no secured page is
// given up again.
void PageSecurer::secure(StepDraft& draft) {
  for (DraftEntry& candidate : draft.candidates) {
    Sequence& sequence = *candidate.sequence;
    if (candidate.count == 0 || !sequence.running()) continue;
    if (sequence.blocks.covers(sequence.extent.most, candidate.count)) continue;
    drop_proposals_without_pages(draft, candidate);
    const int32_t wanted = candidate.count;
    candidate.count = secure_for(sequence, wanted, draft.plan.step);
    draft.budget.tokens_left += wanted - candidate.count;
    if (candidate.count == 0) continue;
    supply_.grow(sequence, candidate.count, Ticket(draft.plan.step), candidate.new_blocks,
                 draft.plan.copies);
  }
}

// Nobody gives up a page for what may be rejected.
void PageSecurer::drop_proposals_without_pages(StepDraft& draft, DraftEntry& candidate) const {
  if (candidate.proposal_count() == 0) return;
  const Sequence& sequence = *candidate.sequence;
  if (supply_.pages_needed(sequence, candidate.count) <= supply_.free_pages_for(sequence)) return;
  const int32_t dropped = candidate.proposal_count();
  candidate.proposed.clear();
  candidate.drafted = 0;
  candidate.count -= dropped;
  draft.budget.tokens_left += dropped;
}

// How many of `count` tokens have their pages, after preempting as far as that helps. 0: not now.
int32_t PageSecurer::secure_for(Sequence& sequence, int32_t count, uint64_t step) {
  sequence.blocks.trim(pool_, sequence.extent.most, sequence.last_step);
  const int64_t turned_over = supply_.turned_over(sequence, step);
  while (true) {
    const int32_t fits = supply_.longest_fit(sequence, count, supply_.free_pages_for(sequence));
    if (fits > 0) return fits;
    if (supply_.stands_behind_kept(sequence)) return 0;
    const int32_t needed = supply_.pages_needed(sequence, options_.chunked_prefill ? 1 : count);
    // What the steps in flight give back is enough: waiting beats preempting.
    if (needed <= supply_.pages_to_come() - turned_over) {
      supply_.await(sequence, step);
      if (&sequence == &table_.running().oldest_to_go_on()) keep_for_oldest();
      return 0;
    }
    if (table_.ended_rows().drop_one()) continue;
    Sequence& youngest = table_.running().youngest();
    const bool own_search = sequence.request->beams && youngest.request == sequence.request;
    if (&youngest == &sequence || own_search) return 0;
    table_.preempt(youngest);
    sequence.awaits_pages_since = 0;
  }
}

}  // namespace headrace
