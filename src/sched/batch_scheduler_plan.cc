// plan(): the phases named in batch_scheduler.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sched/batch_scheduler.h"

namespace headrace {
namespace {

// REQUIRES: Prefilling
int32_t unplanned_prompt(const Sequence& sequence) {
  return std::get<Prefilling>(sequence.state).target - sequence.planned;
}

}  // namespace

StepPlan BatchScheduler::plan() {
  CHECK_MSG(in_flight_.size() < static_cast<size_t>(options_.steps_in_flight_max),
            "plan() with steps_in_flight_max plans not applied");
  StepPlan plan;
  plan.step = next_step_;
  plan.work.reserve(running_.size());
  if (cache_ != nullptr) cache_->begin_plan(Ticket(next_step_));
  if (!nobody_live()) live_seconds_ = now();
  release_slots();
  promote_starving();
  check_reservations();
  // Before the policy chooses a step: it shall see the slots that the background gives way with.
  if (!queue_.empty() && live_running().size() < running_.size()) make_room();
  const StepShape shape = policy_->shape(view());
  may_pause_ = keeps_pages_ = true;
  background_paused_ = false;
  build(plan, shape);
  // A pure step that would be empty: the other kind, and then whatever there is.
  if (plan.empty() && shape == StepShape::kPrefill) build(plan, StepShape::kDecode);
  if (plan.empty() && shape == StepShape::kDecode) build(plan, StepShape::kPrefill);
  if (plan.empty() && shape != StepShape::kMixed) build(plan, StepShape::kMixed);
  may_pause_ = false;
  if (plan.empty() && background_paused_) build(plan, StepShape::kMixed);
  // Pages were kept for one that was refused after all, and nothing is in flight: whom they were
  // kept from goes on.
  keeps_pages_ = false;
  if (plan.empty() && kept_ && in_flight_.empty()) build(plan, StepShape::kMixed);
  if (plan.empty()) {
    CHECK(plan.admitted.empty() && plan.copies.empty());
    return plan;
  }
  plan.released = std::move(released_);
  released_.clear();
  note_background_room(plan);
  in_flight_.push_back({next_step_++, now(), planned_});
  ++totals_.steps;
  return plan;
}

void BatchScheduler::release_slots() {
  // A batch is done when nothing of it runs; a preempted row joins the next one.
  const bool hold_ended = policy_->holds_finished_rows() && !live_running().empty();
  if (!hold_ended) drop_ended_rows();
  std::erase_if(leaving_, [&](const LeavingSlot& leaving) {
    if (hold_ended && leaving.ended) {
      ++totals_.idle_row_steps;
      return false;
    }
    if (leaving.last_step > pool_.applied()) return false;
    free_slots_.push_back(leaving.slot);
    released_.push_back({leaving.sequence, leaving.slot});
    return true;
  });
  // The live count only their own.
  rows_at_start_ = options_.max_num_seqs - static_cast<int32_t>(free_slots_.size());
  for (size_t i = live_running().size(); i < running_.size(); ++i) {
    rows_at_start_ -= 1 + static_cast<int32_t>(running_[i]->followers.size());
  }
  for (const LeavingSlot& leaving : leaving_) rows_at_start_ -= leaving.background ? 1 : 0;
}

void BatchScheduler::build(StepPlan& plan, StepShape shape) {
  planned_.clear();
  keep_pages_for_first();
  if (shape != StepShape::kDecode) make_room();
  choose_tokens(shape);
  secure_pages(plan);
  emit_work(plan);
  if (shape != StepShape::kDecode) admit_waiting(plan);
  collect_moves(plan);
}

void BatchScheduler::collect_moves(StepPlan& plan) {
  if (cache_ == nullptr || options_.tiers.empty()) return;
  const TierMoves moves = cache_->take_moves();
  plan.stores.insert(plan.stores.end(), moves.stores.begin(), moves.stores.end());
  plan.loads.insert(plan.loads.end(), moves.loads.begin(), moves.loads.end());
}

// Who is displaced by the next in line gives way before tokens are chosen: where no step in flight
// has work for him, his slot is free in this very step.
void BatchScheduler::make_room() {
  begin_budget();
  if (running_.empty()) return;
  Sequence* head = next_to_join();
  // A policy that names nobody, for want of slots or pages, gets those of the background.
  while (head == nullptr && !queue_.empty() && !running_.empty() &&
         running_.back()->rank.background) {
    yield(*running_.back());
    release_slots();
    head = next_to_join();
  }
  if (head == nullptr || victim_for(*head) == nullptr) return;
  if (head->last_step > pool_.applied() || held_back(*head)) return;
  if (!make_slots(*head)) release_slots();
  const PrefixMatch hit = supply_.find_prefix(*head, running_);
  make_pages(*head, hit);
  const int64_t pages = supply_.pages_to_join(*head, hit, running_);
  // For pages that nobody gives it, it waits behind those that hold them.
  const bool joins_next =
      pages <= pool_.free_count() + pool_.fenced_count() && leaves_headroom(*head, hit);
  if (joins_next && keeps_pages_) kept_ = {head->rank, pages};
}

// Who has waited longest first, whether it runs (the token budget never reached it) or not: where
// few may be promoted, those that run would take every turn from those that wait.
void BatchScheduler::promote_starving() {
  if (!policy_->may_starve()) return;
  const auto after = static_cast<uint64_t>(options_.promote_after_steps);
  while (may_promote()) {
    Sequence* sequence = longest_without_work();
    if (sequence == nullptr || sequence->waits_since + after > next_step_) return;
    ++totals_.promotions;
    if (sequence->running()) {
      policy_->promote(*sequence);
      sequence->waits_since = next_step_;
      std::sort(running_.begin(), running_.end(), ByRank());
      continue;
    }
    waits_.pop_front();
    dequeue(*sequence);
    policy_->promote(*sequence);
    enqueue(*sequence, next_step_);
  }
}

// Of the live that are not promoted; null: there is none.
Sequence* BatchScheduler::longest_without_work() {
  Sequence* longest = nullptr;
  for (Sequence* running : live_running()) {
    if (running->rank.level == kPromotedLevel) continue;
    if (longest == nullptr || running->waits_since < longest->waits_since) longest = running;
  }
  for (; !waits_.empty(); waits_.pop_front()) {
    const Wait& wait = waits_.front();
    Sequence* first = find(wait.sequence);
    const bool waits = first != nullptr && first->is<Waiting>() &&
                       first->waits_since == wait.since &&
                       std::get<Waiting>(first->state).leader == nullptr;
    if (!waits || first->rank.level == kPromotedLevel) continue;
    return longest == nullptr || first->waits_since < longest->waits_since ? first : longest;
  }
  return longest;
}

// Who has outgrown what was reserved for it gets the next reservation, or makes room for others.
void BatchScheduler::check_reservations() {
  if (!reserves_) return;
  for (size_t i = running_.size(); i-- > 0;) {
    Sequence& sequence = *running_[i];
    const bool outgrown = sequence.reserved > 0 && sequence.is<Decoding>() &&
                          sequence.known_length() >= sequence.reserved;
    if (!outgrown || sequence.reserved >= sequence.length_max()) continue;
    policy_->overran(sequence);
    sequence.reserved = std::min(policy_->reserved_length(sequence), sequence.length_max());
    if (i > 0 && admission_.pages_promised(running_) > pool_.free_count()) yield(sequence);
  }
}

bool BatchScheduler::can_decode(const Sequence& sequence) const {
  const int32_t sampled = static_cast<int32_t>(sequence.output.size()) + sequence.samples_in_flight;
  return sampled < sequence.request->sampling.max_tokens &&
         sequence.planned < sequence.prompt_length() + sampled;
}

// The budget of a step: tokens, and seconds where its decodes are promised a time per token.
void BatchScheduler::begin_budget() {
  crowd_left_ = budget_left_ = options_.max_num_batched_tokens;
  load_ = {};
  seconds_max_ = std::numeric_limits<double>::infinity();
}

// A prompt's next tokens, from `first` on, under the budget that is left. All prompts of a step
// together get kPromptTokensMin, whatever that costs the decodes.
int32_t BatchScheduler::chunk_of(int32_t first, int32_t remaining) const {
  if (!options_.chunked_prefill) return remaining <= budget_left_ ? remaining : 0;
  const int32_t most = std::min(remaining, budget_left_);
  if (std::isinf(seconds_max_)) return most;
  const auto least = static_cast<int32_t>(kPromptTokensMin - load_.prompt_tokens);
  return std::min(most, std::max(least, prompt_tokens_within(seconds_max_, first, most)));
}

// Tokens of a prompt, from `first` on and at most so many, with which a step that has `load` takes
// no longer than `seconds`, by the measured cost of steps.
int32_t BatchScheduler::prompt_tokens_beside(const StepLoad& load, double seconds, int32_t first,
                                             int32_t most) const {
  const auto fits = [&](int32_t tokens) {
    StepLoad chunk;
    chunk.add({.first = first, .count = tokens});
    return cost_.cost().seconds(load + chunk) <= seconds;
  };
  if (most <= 0 || fits(most)) return std::max(0, most);
  int32_t low = 0, high = most;  // fits(low) or nothing does, not fits(high)
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

// Work of the step under construction.
void BatchScheduler::take_budget(const Sequence& sequence, int32_t first, int32_t count) {
  if (count == 0) return;
  budget_left_ -= count;
  if (!sequence.is<Decoding>() && policy_->crowds(sequence)) crowd_left_ -= count;
  load_.add({.first = first, .count = count, .samples = sequence.is<Decoding>()});
}

// How long a step with decodes may take; a prompt that may not be cut is computed whole, whatever
// that costs them. While nothing is known of the cost of steps there is no bound.
double BatchScheduler::seconds_beside_decodes() {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  if (!options_.chunked_prefill || !cost_.knows()) return kAny;
  const double by_policy = policy_->step_seconds(view());
  if (options_.tpot_target_seconds <= 0) return by_policy;
  long_steps_ = std::min(kLongStepsMax, long_steps_ + options_.tpot_over_share);
  return spend_long_step() ? kAny : std::min(by_policy, tpot_seconds());
}

// Whether this step is full, whatever its decodes are promised: what is left of the first prompt
// fits into the full steps that may be taken. They go to the ends of prompts, where they save most:
// a token there costs most, so that chunks under the target are smallest.
bool BatchScheduler::spend_long_step() {
  const auto first = std::find_if(running_.begin(), running_.end(),
                                  [](const Sequence* each) { return each->is<Prefilling>(); });
  if (first == running_.end() || long_steps_ < 1) return false;
  const int32_t left = unplanned_prompt(**first);
  if (left > std::floor(long_steps_) * budget_left_) return false;
  if (prompt_tokens_within(tpot_seconds(), (*first)->planned, left) >= left) return false;
  --long_steps_;
  return true;
}

// Decodes first, a token each; prompt chunks fill the rest. Only a prompt that is the oldest of all
// goes before the decodes, so that no number of them can stop it.
void BatchScheduler::choose_tokens(StepShape shape) {
  candidates_.clear();
  begin_budget();
  const int32_t kept = budget_for_oldest(shape);
  const bool crowd_waits = shape == StepShape::kMixed && gives_way_to_prompt();
  for (Sequence* sequence : running_) {
    const bool pauses = crowd_waits && sequence != running_.front() && policy_->crowds(*sequence);
    const bool decodes_now = !pauses && shape != StepShape::kPrefill && sequence->is<Decoding>() &&
                             !sequence->rank.background && budget_left_ > kept &&
                             can_decode(*sequence);
    candidates_.push_back({sequence, decodes_now ? 1 : 0, {}});
    if (decodes_now) take_budget(*sequence, sequence->planned, 1);
  }
  if (load_.decodes > 0) seconds_max_ = seconds_beside_decodes();
  if (shape != StepShape::kDecode) share_prompt_budget();
  choose_background(shape);
}

// What the decodes leave to the oldest of all where it is a prompt.
int32_t BatchScheduler::budget_for_oldest(StepShape shape) const {
  if (running_.empty() || !running_.front()->is<Prefilling>()) return 0;
  if (shape != StepShape::kMixed) return 0;
  return options_.chunked_prefill ? 1 : unplanned_prompt(*running_.front());
}

// The first prompt gets half of the budget at least, so that its time to the first token at most
// doubles; shorter ones need not wait until it is computed.
void BatchScheduler::share_prompt_budget() {
  const auto remaining = [](const Candidate& candidate) {
    return unplanned_prompt(*candidate.sequence);
  };
  const auto give = [&](Candidate& candidate, int32_t most) {
    const int32_t first = candidate.sequence->planned + candidate.count;
    const int32_t tokens = chunk_for(*candidate.sequence, first,
                                     std::min(remaining(candidate) - candidate.count, most));
    take_budget(*candidate.sequence, first, tokens);
    candidate.count += tokens;
  };
  std::vector<Candidate*> prompts;
  for (Candidate& candidate : candidates_) {
    const bool live = !candidate.sequence->rank.background;
    if (live && candidate.sequence->is<Prefilling>()) prompts.push_back(&candidate);
  }
  if (options_.chunked_prefill) crowd_left_ = crowd_budget();
  if (prompts.empty()) return;
  Candidate* first = prompts[0];
  std::stable_sort(prompts.begin(), prompts.end(), [&](const Candidate* a, const Candidate* b) {
    return policy_->prompt_order(*a->sequence) < policy_->prompt_order(*b->sequence);
  });
  // The first by rank goes on whatever the policy's order.
  if (options_.chunked_prefill && prompts[0] != first) {
    crowd_left_ = std::max(crowd_left_, 1);
    give(*first, 1);
  }
  if (!options_.chunked_prefill) {
    for (Candidate* prompt : prompts) give(*prompt, remaining(*prompt));
    return;
  }
  const int32_t budget = chunk_of(prompts[0]->sequence->planned, budget_left_);
  const int32_t kept = remaining(*prompts[0]) >= budget ? budget_for_waiting(budget) : 0;
  const int32_t not_shared = budget_left_ - (budget - kept);
  budget_left_ -= not_shared;
  const auto order = [&](const Candidate& each) { return policy_->prompt_order(*each.sequence); };
  const bool alone = prompts.size() == 1 || order(*prompts[0]) < order(*prompts[1]);
  give(*prompts[0], alone ? budget_left_ : std::max(1, budget_left_ / 2));
  std::stable_sort(prompts.begin() + 1, prompts.end(), [&](const Candidate* a, const Candidate* b) {
    return std::pair(order(*a), remaining(*a)) < std::pair(order(*b), remaining(*b));
  });
  for (size_t i = 1; i < prompts.size(); ++i) give(*prompts[i], remaining(*prompts[i]));
  give(*prompts[0], budget_left_);
  budget_left_ += not_shared;
}

// What a long prompt leaves for the one that can join in this step.
int32_t BatchScheduler::budget_for_waiting(int32_t budget) {
  if (queue_.empty() || admission_.on_hold()) return 0;
  const Sequence& first = **queue_.begin();
  if (!has_room(first)) return 0;
  return std::min(budget / 2, first.known_length());
}

void BatchScheduler::emit_work(StepPlan& plan) {
  const auto emit = [&](auto&& wanted) {
    for (Candidate& candidate : candidates_) {
      if (candidate.count > 0 && candidate.sequence->running() && wanted(*candidate.sequence)) {
        add_work(candidate, plan);
        candidate.count = 0;
      }
    }
  };
  emit([](const Sequence& sequence) { return sequence.is<Decoding>(); });
  compute_ended_rows(plan);
  emit([](const Sequence& sequence) { return sequence.is<Prefilling>(); });
}

void BatchScheduler::add_work(Candidate& candidate, StepPlan& plan) {
  Sequence& sequence = *candidate.sequence;
  Work work{.sequence = sequence.id,
            .slot = sequence.slot(),
            .first = sequence.planned,
            .count = candidate.count,
            .also_sample = {},
            .new_blocks = std::move(candidate.new_blocks)};
  sequence.planned += work.count;
  sequence.last_step = Ticket(plan.step);
  sequence.waits_since = plan.step;
  sequence.awaits_pages_since = 0;
  plan.token_count += work.count;

  const auto* prefilling = std::get_if<Prefilling>(&sequence.state);
  const bool last = prefilling == nullptr || sequence.planned == prefilling->target;
  work.samples = last && !sequence.muted && sequence.request->sampling.max_tokens > 0;
  if (last && prefilling != nullptr && sequence.request->sampling.max_tokens > 0) {
    sequence.state = Decoding{prefilling->slot};
    start_followers(sequence, work, plan);
  }
  if (work.samples) ++sequence.samples_in_flight;
  if (wants_prompt_logprobs(sequence, work.first, work.count)) {
    work.rows = LogitRows::kAll;
  } else if (work.samples || !work.also_sample.empty()) {
    work.rows = LogitRows::kLast;
  }
  plan.work.push_back(std::move(work));
  planned_.push_back(&sequence);
  if (sequence.muted && last && sequence.followers.empty()) retire(sequence);
}

// The prompt is computed in this step: the other choices share its pages and sample their first
// token from the same row.
void BatchScheduler::start_followers(Sequence& leader, Work& work, StepPlan& plan) {
  for (Sequence* follower : leader.followers) {
    const SlotId slot = std::get<Waiting>(follower->state).slot.value();
    follower->blocks = leader.blocks.fork(pool_, leader.planned);
    follower->planned = leader.planned;
    follower->computed_max = leader.planned;
    follower->path = leader.path;
    follower->policy = leader.policy;
    follower->reserved = leader.reserved;
    follower->rank = rank_of(*follower);
    follower->waits_since = next_step_;
    follower->prefix_tokens = leader.prefix_tokens;
    follower->samples_in_flight = 1;
    follower->last_step = leader.last_step;
    follower->state = Decoding{slot};
    plan.admitted.push_back({.sequence = follower->id,
                             .slot = slot,
                             .choice = follower->choice,
                             .request = follower->request,
                             .tokens = follower->request->prompt,
                             .blocks = follower->blocks.table()});
    work.also_sample.push_back({follower->id, slot});
    run(*follower);
  }
  leader.followers.clear();
}

// The row of token p scores prompt token p + 1; what was emitted before a preemption is not again.
bool BatchScheduler::wants_prompt_logprobs(const Sequence& sequence, int32_t first,
                                           int32_t count) const {
  if (sequence.request->sampling.prompt_logprobs < 0) return false;
  if (sequence.choice != 0 || sequence.muted) return false;
  const int32_t last_scored = std::min(first + count, sequence.prompt_length() - 1);
  return last_scored > first && last_scored >= sequence.entry->prompt_scored;
}

std::span<Sequence* const> BatchScheduler::live_running() const {
  if (running_.empty() || !running_.back()->rank.background) return running_;
  const auto end = std::partition_point(running_.begin(), running_.end(), [](const Sequence* each) {
    return !each->rank.background;
  });
  return {running_.begin(), end};
}

StepView BatchScheduler::view() const {
  return {.running = live_running(),
          .queue = queue_,
          .free_slots = static_cast<int32_t>(free_slots_.size()),
          .step = next_step_,
          .now_seconds = now(),
          .cost = cost_.knows() ? &cost_.cost() : nullptr,
          .cached_tokens = cached_tokens_,
          .fits = fits_};
}

// Whom the policy names; null: nobody now.
Sequence* BatchScheduler::next_to_join() {
  if (queue_.empty()) {
    if (background_queue_.empty()) return nullptr;
    Sequence* first = *background_queue_.begin();
    // Alone it goes on, however little the bound leaves.
    const int32_t least = running_.empty() ? 1 : 0;
    budget_left_ = std::min(budget_left_, std::max(least, background_prompt_tokens(*first)));
    const int32_t cached = cached_tokens(*first);
    return chunk_of(cached, first->known_length() - cached) > 0 ? first : nullptr;
  }
  const StepView now = view();
  while (policy_->reconsider(**queue_.begin(), now.now_seconds)) {
    Sequence& first = **queue_.begin();
    dequeue(first);
    place_in_queue(first);
  }
  return policy_->next(now);
}

void BatchScheduler::admit_waiting(StepPlan& plan) {
  while (Sequence* head = next_to_join()) {
    if (head->last_step > pool_.applied()) return;  // preempted; its last token is in flight
    if (held_back(*head)) return;
    if (!make_slots(*head)) return;
    const PrefixMatch hit = supply_.find_prefix(*head, running_);
    const bool no_budget = chunk_of(hit.tokens, head->known_length() - hit.tokens) == 0;
    if (Sequence* victim = victim_for(*head); no_budget && victim != nullptr) {
      yield(*victim);  // so that the next step has budget
      return;
    }
    if (!no_budget && chunk_for(*head, hit.tokens, head->known_length() - hit.tokens) == 0) return;
    if (!may_join(*head, hit) || !leaves_headroom(*head, hit)) return;
    if (!make_pages(*head, hit)) {
      if (policy_->holds_after_refusal()) {
        admission_.allocation_failed(static_cast<int64_t>(running_.size()));
      }
      return;
    }
    admit(*head, hit, plan);
  }
}

// After a step ran out of pages nobody joins for a while: but the promoted, and the live where
// background sequences can give way.
bool BatchScheduler::held_back(const Sequence& head) const {
  if (!admission_.on_hold() || running_.empty() || head.rank.level == kPromotedLevel) return false;
  return head.rank.background || !running_.back()->rank.background;
}

// Nobody joins past the one that was named.
bool BatchScheduler::may_join(const Sequence& head, const PrefixMatch& hit) const {
  BatchView batch{.rows_at_start = rows_at_start_,
                  .token_budget_left = chunk_of(hit.tokens, head.known_length() - hit.tokens),
                  .resumes = head.preemptions + head.yields > 0};
  // The live see only each other.
  const std::span<Sequence* const> running =
      head.rank.background ? std::span<Sequence* const>(running_) : live_running();
  for (size_t i = 0; i < running.size(); ++i) {
    if (i == 0 || running[i]->request != running[i - 1]->request) ++batch.requests_running;
    if (running[i]->is<Prefilling>()) ++batch.sequences_prefilling;
  }
  return policy_->admits(batch);
}

// Whether those that run can be expected to grow to their ends beside it. Who may displace others,
// or has pages of its own, does not ask.
bool BatchScheduler::leaves_headroom(const Sequence& head, const PrefixMatch& hit) {
  const bool asks = options_.allocation == KvAllocation::kPaged && head.reserved == 0 &&
                    !policy_->holds_finished_rows() && head.rank.level != kPromotedLevel;
  if (!asks || running_.empty() || victim_for(head) != nullptr) return true;
  const int64_t pages = supply_.pages_to_join(head, hit, running_);
  return admission_.leaves_headroom(head, running_,
                                    pool_.free_count() + pool_.fenced_count() - pages,
                                    cost_.knows() ? &cost_.cost() : nullptr);
}

int32_t BatchScheduler::cached_tokens(const Sequence& waiting) const {
  return supply_.find_prefix(waiting, running_).tokens;
}

bool BatchScheduler::fits(const Sequence& waiting) const {
  if (free_slots_.size() <= waiting.followers.size()) return false;
  const PrefixMatch hit = supply_.find_prefix(waiting, running_);
  return supply_.pages_to_join(waiting, hit, running_) <= free_pages_for(waiting);
}

// Whether it could join now: who holds something back for it must not do so in vain.
bool BatchScheduler::has_room(const Sequence& head) {
  return head.last_step <= pool_.applied() && fits(head) &&
         leaves_headroom(head, supply_.find_prefix(head, running_));
}

void BatchScheduler::note_prefix(const Sequence& head, int32_t found_tokens) {
  if (cache_ == nullptr) return;
  if (head.preemptions + head.yields > 0) {
    totals_.resumed_tokens += static_cast<uint64_t>(found_tokens);
    return;
  }
  totals_.prefix_cache_queries += static_cast<uint64_t>(head.known_length());
  totals_.prefix_cache_hits += static_cast<uint64_t>(found_tokens);
  head.entry->cached_tokens = found_tokens;
}

void BatchScheduler::admit(Sequence& head, const PrefixMatch& hit, StepPlan& plan) {
  dequeue(head);
  head.state = Prefilling{.slot = take_slot(), .target = head.known_length()};
  for (Sequence* follower : head.followers) {
    std::get<Waiting>(follower->state).slot = take_slot();
  }
  charge_displacement(head, hit.tokens);
  note_prefix(head, hit.tokens);
  const Ticket usable_after = supply_.adopt(head, hit);
  supply_.unpin(head);
  plan.admitted.push_back({.sequence = head.id,
                           .slot = head.slot(),
                           .choice = head.choice,
                           .request = head.request,
                           .tokens = head.known_tokens(),
                           .blocks = head.blocks.table()});
  run(head);
  if (usable_after == Ticket(plan.step)) {
    head.last_step = usable_after;  // the load refers to its pages
    return;
  }
  const int32_t chunk = chunk_for(head, head.planned, head.known_length() - head.planned);
  Candidate candidate{&head, supply_.longest_fit(head, chunk, free_pages_for(head)), {}};
  if (candidate.count == 0) return;  // a static batch starts whole; its prompt waits for budget
  take_budget(head, head.planned, candidate.count);
  grow(candidate, plan);
  add_work(candidate, plan);
}

}  // namespace headrace
