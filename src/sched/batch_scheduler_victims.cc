// Who gives way: pages for what runs, slots and pages for who joins, and from whom they come.
#include <algorithm>
#include <cmath>
#include <utility>

#include "sched/batch_scheduler.h"

namespace headrace {

// The first that runs waited for pages in an earlier plan. Those that were fenced then come free
// within steps_in_flight_max plans; that they are there then is the reason why nobody behind it may
// take them, in steps of whatever shape.
void BatchScheduler::keep_pages_for_first() {
  kept_.reset();
  if (running_.empty() || running_.front()->awaits_pages_since == 0) return;
  const Sequence& first = *running_.front();
  kept_ = {first.rank, supply_.pages_needed(first, tokens_to_go_on(first))};
}

bool BatchScheduler::stands_behind_kept(const Sequence& sequence) const {
  return kept_ && kept_->rank < sequence.rank;
}

int64_t BatchScheduler::free_pages_for(const Sequence& sequence) const {
  const int64_t kept = stands_behind_kept(sequence) ? kept_->pages : 0;
  return std::max<int64_t>(0, pool_.free_count() - kept);
}

// The fewest that a step can compute of it. REQUIRES: running
int32_t BatchScheduler::tokens_to_go_on(const Sequence& sequence) const {
  const auto* prefilling = std::get_if<Prefilling>(&sequence.state);
  return prefilling == nullptr || options_.chunked_prefill ? 1
                                                           : prefilling->target - sequence.planned;
}

// Oldest first; a victim is always younger than who needs its pages, so nothing secured is undone.
void BatchScheduler::secure_pages(StepPlan& plan) {
  for (Candidate& candidate : candidates_) {
    if (candidate.count == 0 || !candidate.sequence->running()) continue;
    if (candidate.sequence->blocks.settled(candidate.sequence->planned, candidate.count)) continue;
    const int32_t wanted = candidate.count;
    candidate.count = secure(*candidate.sequence, wanted);
    budget_left_ += wanted - candidate.count;
    if (candidate.count > 0) grow(candidate, plan);
  }
}

// How many of `count` tokens have their pages, after preempting as far as that helps. 0: not now.
int32_t BatchScheduler::secure(Sequence& sequence, int32_t count) {
  sequence.blocks.trim(pool_, sequence.planned, sequence.last_step);
  const int64_t turned_over = supply_.turned_over(sequence, next_step_);
  while (true) {
    const int32_t fits = supply_.longest_fit(sequence, count, free_pages_for(sequence));
    if (fits > 0) return fits;
    if (stands_behind_kept(sequence)) return 0;
    admission_.allocation_failed(static_cast<int64_t>(running_.size()));
    const int32_t needed = supply_.pages_needed(sequence, options_.chunked_prefill ? 1 : count);
    // What the steps in flight give back is enough: waiting beats preempting.
    if (needed <= pool_.free_count() + pool_.fenced_count() - turned_over) {
      supply_.await(sequence, next_step_);
      if (&sequence == running_.front()) keep_pages_for_first();
      return 0;
    }
    if (drop_an_ended_row()) continue;
    Sequence* youngest = running_.back();
    if (youngest == &sequence) return 0;
    preempt(*youngest);
    sequence.awaits_pages_since = 0;
  }
}

void BatchScheduler::grow(Candidate& candidate, StepPlan& plan) {
  supply_.grow(*candidate.sequence, candidate.count, Ticket(plan.step), candidate.new_blocks,
               plan.copies);
}

// Whether what runs is preempted for it: as its policy says; the promoted displace all behind them,
// the live all in the background.
bool BatchScheduler::displaces(const Sequence& head, const Sequence& running) const {
  if (head.rank.background) return false;
  if (running.rank.background) return true;
  if (head.rank.level == kPromotedLevel && policy_->promoted_displaces()) {
    return head.rank < running.rank;
  }
  return may_displace() && policy_->preempts(head, running);
}

// Whether what the policy's preemptions cost leaves room for more.
bool BatchScheduler::may_displace() const {
  return displacement_seconds_ >= 0 || std::isinf(policy_->displacement_share());
}

// The promoted displace others whatever that costs: so they wait until it may cost something.
bool BatchScheduler::may_promote() const {
  return may_displace() && policy_->may_promote(running_.size());
}

// The youngest of those that give way to it; null: nobody does.
Sequence* BatchScheduler::victim_for(const Sequence& head) const {
  const auto found = std::find_if(running_.rbegin(), running_.rend(), [&](const Sequence* running) {
    return displaces(head, *running);
  });
  return found == running_.rend() ? nullptr : *found;
}

// Whether there are slots for it now. What is preempted for it gives its slot when its last step
// was applied.
bool BatchScheduler::make_slots(const Sequence& head) {
  const size_t needed = 1 + head.followers.size();
  while (free_slots_.size() + leaving_.size() < needed) {
    Sequence* victim = victim_for(head);
    if (victim == nullptr) break;
    yield(*victim);
  }
  return free_slots_.size() >= needed;
}

bool BatchScheduler::make_pages(Sequence& head, const PrefixMatch& hit) {
  const int64_t turned_over = supply_.turned_over(head, next_step_);
  const auto needed = [&] { return supply_.pages_to_join(head, hit, running_); };
  if (stands_behind_kept(head)) return needed() <= free_pages_for(head);
  while (needed() > pool_.free_count() + pool_.fenced_count() - turned_over) {
    Sequence* victim = victim_for(head);
    if (victim == nullptr) break;
    yield(*victim);
    head.awaits_pages_since = 0;
  }
  if (needed() <= pool_.free_count()) return true;
  supply_.await(head, next_step_);
  return false;
}

// Its pages go to one before it. What it has generated is kept and computed again later.
void BatchScheduler::preempt(Sequence& victim) {
  ++totals_.preemptions;
  ++victim.preemptions;
  requeue(victim);
}

// The same, because its policy prefers another.
void BatchScheduler::yield(Sequence& victim) {
  ++totals_.yields;
  ++victim.yields;
  victim.displaced = !victim.rank.background;
  requeue(victim);
}

// Who was displaced joins again: what was lost of it is computed at the cost of all, in a step of
// its own but for the weights, or in one whose first rows others have paid for: the dearer.
void BatchScheduler::charge_displacement(Sequence& head, int32_t found_tokens) {
  if (!std::exchange(head.displaced, false)) return;
  if (std::isinf(policy_->displacement_share())) return;
  StepLoad again;
  again.add({.first = found_tokens, .count = head.known_length() - found_tokens});
  const StepCost& cost = cost_.cost();
  const double alone = cost.seconds(again) - cost.base;
  const double in_full_step = again.prompt_tokens * cost.seconds_per_prompt_token() +
                              again.prompt_context * cost.per_prompt_context;
  displacement_seconds_ -= std::max(alone, in_full_step);
}

void BatchScheduler::requeue(Sequence& victim) {
  drop_reserved_slots(victim);
  if (victim.muted) {
    hand_over(victim);
    retire(victim);
    return;
  }
  supply_.pin(victim);
  leave_batch(victim, /*ended=*/false);
  victim.state = Waiting{};
  // It has waited since its last work, and not only since it lost its slot: who joined, had its
  // pages loaded and lost them again got nothing.
  enqueue(victim, victim.waits_since);
}

}  // namespace headrace
