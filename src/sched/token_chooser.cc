#include "sched/token_chooser.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace headrace {

void TokenChooser::choose(StepDraft& draft) {
  const StepShape shape = draft.terms.shape;
  draft.candidates.clear();
  draft.budget = {.tokens_left = options_.max_num_batched_tokens,
                  .crowd_left = options_.max_num_batched_tokens};
  const int32_t kept = budget_for_oldest(shape);
  choose_decodes(draft, kept);
  if (draft.budget.load.decodes > 0) draft.budget.seconds_max = seconds_beside_decodes(draft);
  if (shape != StepShape::kDecode) share_prompt_budget(draft);
  if (!background_.any()) return;
  // A request that joins is planned after the background, and its first step would be longer by the
  // background's part.
  draft.background_paused = draft.terms.background_pauses && live_one_joins(shape);
  if (draft.background_paused) return;
  background_.choose_tokens(draft, table_.running().live().empty() ? kept : 0);
}

void TokenChooser::choose_decodes(StepDraft& draft, int32_t kept) {
  const StepShape shape = draft.terms.shape;
  StepBudget& budget = draft.budget;
  const bool crowd_waits = shape == StepShape::kMixed && look_for_other_prompts(draft.plan.step);
  const std::span<Sequence* const> running = table_.running().all();
  draft.candidates.reserve(running.size());
  int64_t places = cohort_size();
  for (Sequence* sequence : running) {
    proposer_.ask(*sequence);
    const bool pauses = crowd_waits && sequence != running.front() && policy_.crowds(*sequence);
    const bool decodes_now = !pauses && shape != StepShape::kPrefill && sequence->is<Decoding>() &&
                             !sequence->rank.background && budget.tokens_left > kept &&
                             places > 0 && sequence->can_decode();
    DraftEntry& candidate = draft.candidates.emplace_back();
    candidate.sequence = sequence;
    if (!decodes_now) continue;
    --places;
    candidate.count = 1;
    take(budget, *sequence, sequence->extent.most, 1);
  }
  proposer_.propose(draft, kept);
}

// Most decodes of a step. Those that this one leaves out are for the next: by then its own wait for
// their result, so that every sequence has its turn.
int64_t TokenChooser::cohort_size() const {
  if (options_.cohorts.count == 1) return std::numeric_limits<int64_t>::max();
  const int64_t decoding =
      std::ranges::count_if(table_.running().all(), [](const Sequence* sequence) {
        return sequence->is<Decoding>() && !sequence->rank.background;
      });
  const int64_t wanted = int64_t{options_.cohorts.decodes_of_more} * options_.steps_in_flight_max;
  const bool many = wanted > 0 && decoding >= wanted;
  const int64_t cohorts = many ? options_.steps_in_flight_max : options_.cohorts.count;
  return (decoding + cohorts - 1) / cohorts;
}

// What the decodes leave to the oldest of all where it is a prompt.
int32_t TokenChooser::budget_for_oldest(StepShape shape) const {
  const RunningSet& running = table_.running();
  if (running.empty() || shape != StepShape::kMixed) return 0;
  const Sequence& oldest = running.oldest_to_go_on();
  if (!oldest.is<Prefilling>()) return 0;
  return options_.chunked_prefill ? 1 : oldest.unplanned_prompt();
}

// Whether a live request has all it needs to join in this step.
bool TokenChooser::live_one_joins(StepShape shape) const {
  if (table_.line().live().empty() || shape == StepShape::kDecode) return false;
  const Sequence& first = **table_.line().live().begin();
  return !admitter_.held_back(first) && admitter_.has_room(first);
}

// --- time

// How long a step with decodes may take; a prompt that may not be cut is computed whole, whatever
// that costs them. While nothing is known of the cost of steps there is no bound.
double TokenChooser::seconds_beside_decodes(const StepDraft& draft) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  if (!options_.chunked_prefill || !pace_.knows()) return kAny;
  const double full = options_.step_seconds_max > 0 ? pace_.full_step_seconds() : kAny;
  const double by_policy = std::min(full, policy_.step_seconds(admitter_.view(draft.plan.step)));
  if (options_.tpot_target_seconds <= 0) return by_policy;
  long_steps_ = std::min(kLongStepsMax, long_steps_ + options_.tpot_over_share);
  return spend_long_step(draft.budget) ? full : std::min(by_policy, pace_.tpot_seconds());
}

// Whether this step is full, whatever its decodes are promised: what is left of the first prompt
// fits into the full steps that may be taken. They go to the ends of prompts, where they save most:
// a token there costs most, so that chunks under the target are smallest.
bool TokenChooser::spend_long_step(const StepBudget& budget) {
  const std::span<Sequence* const> running = table_.running().all();
  const auto first = std::find_if(running.begin(), running.end(),
                                  [](const Sequence* each) { return each->is<Prefilling>(); });
  if (first == running.end() || long_steps_ < 1) return false;
  const int32_t left = (*first)->unplanned_prompt();
  if (left > std::floor(long_steps_) * budget.tokens_left) return false;
  const double target = pace_.tpot_seconds();
  if (pace_.prompt_tokens_within(target, budget.load, (*first)->extent.most, left) >= left) {
    return false;
  }
  --long_steps_;
  return true;
}

// --- prompts

int32_t TokenChooser::chunk(const StepBudget& budget, const Sequence& sequence, int32_t first,
                            int32_t remaining) const {
  const bool crowds = policy_.crowds(sequence);
  return pace_.chunk(budget, first, crowds ? std::min(remaining, budget.crowd_left) : remaining);
}

void TokenChooser::take(StepBudget& budget, const Sequence& sequence, int32_t first,
                        int32_t count) const {
  budget.take(sequence, first, count);
  if (count > 0 && !sequence.is<Decoding>() && policy_.crowds(sequence)) budget.crowd_left -= count;
}

void TokenChooser::give(StepBudget& budget, DraftEntry& prompt, int32_t most) const {
  const Sequence& sequence = *prompt.sequence;
  const int32_t first = sequence.extent.most + prompt.count;
  const int32_t tokens =
      chunk(budget, sequence, first, std::min(sequence.unplanned_prompt() - prompt.count, most));
  take(budget, sequence, first, tokens);
  prompt.count += tokens;
}

// The prompts of a step, in the policy's order. The first by rank goes on whatever that is.
void TokenChooser::share_prompt_budget(StepDraft& draft) {
  StepBudget& budget = draft.budget;
  std::vector<DraftEntry*> prompts;
  for (DraftEntry& candidate : draft.candidates) {
    const bool live = !candidate.sequence->rank.background;
    if (live && candidate.sequence->is<Prefilling>()) prompts.push_back(&candidate);
  }
  if (options_.chunked_prefill) budget.crowd_left = crowd_budget(draft);
  if (prompts.empty()) return;
  DraftEntry* oldest = prompts[0];
  std::stable_sort(prompts.begin(), prompts.end(), [&](const DraftEntry* a, const DraftEntry* b) {
    return policy_.prompt_order(*a->sequence) < policy_.prompt_order(*b->sequence);
  });
  if (!options_.chunked_prefill) {
    for (DraftEntry* prompt : prompts) give(budget, *prompt, prompt->sequence->unplanned_prompt());
    return;
  }
  if (prompts[0] != oldest) {
    budget.crowd_left = std::max(budget.crowd_left, 1);
    give(budget, *oldest, 1);
  }
  share_in_turns(budget, prompts);
}

// The first prompt gets half of the budget at least, so that its time to the first token at most
// doubles; shorter ones need not wait until it is computed.
void TokenChooser::share_in_turns(StepBudget& budget, std::vector<DraftEntry*>& prompts) {
  const auto order = [&](const DraftEntry* each) { return policy_.prompt_order(*each->sequence); };
  const auto remaining = [](const DraftEntry* each) { return each->sequence->unplanned_prompt(); };
  DraftEntry& first = *prompts[0];
  const int32_t tokens = pace_.chunk(budget, first.sequence->extent.most, budget.tokens_left);
  const int32_t kept = remaining(&first) >= tokens ? budget_for_waiting(tokens) : 0;
  const int32_t not_shared = budget.tokens_left - (tokens - kept);
  budget.tokens_left -= not_shared;
  const bool alone = prompts.size() == 1 || order(prompts[0]) < order(prompts[1]);
  give(budget, first, alone ? budget.tokens_left : std::max(1, budget.tokens_left / 2));
  std::stable_sort(prompts.begin() + 1, prompts.end(),
                   [&](const DraftEntry* a, const DraftEntry* b) {
                     return std::pair(order(a), remaining(a)) < std::pair(order(b), remaining(b));
                   });
  for (size_t i = 1; i < prompts.size(); ++i) give(budget, *prompts[i], remaining(prompts[i]));
  give(budget, first, budget.tokens_left);
  budget.tokens_left += not_shared;
}

// What a long prompt leaves for the one that can join in this step.
int32_t TokenChooser::budget_for_waiting(int32_t budget) const {
  const WaitingQueue& waiting = table_.line().live();
  if (waiting.empty() || admitter_.on_hold()) return 0;
  const Sequence& first = **waiting.begin();
  return admitter_.has_room(first) ? std::min(budget / 2, first.known_length()) : 0;
}

// --- tenants that crowd

// Whether a prompt of another tenant runs or can join now: it gets a step without the crowd.
bool TokenChooser::look_for_other_prompts(uint64_t step) {
  if (options_.crowd_step_ratio <= 0 || !policy_.rules().may_crowd) return false;
  const std::span<Sequence* const> running = table_.running().live();
  const bool runs = std::any_of(running.begin(), running.end(), [&](const Sequence* each) {
    return each->is<Prefilling>() && !policy_.crowds(*each);
  });
  if (runs || table_.line().live().empty()) return runs;
  const Sequence* head = admitter_.name_next(step);
  return head != nullptr && !policy_.crowds(*head) && !admitter_.held_back(*head) &&
         admitter_.has_room(*head);
}

// Prompt tokens of crowding tenants in this step, beside the decodes that have been chosen.
int32_t TokenChooser::crowd_budget(const StepDraft& draft) {
  constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = 16;  // they go on, whatever decodes cost
  if (options_.crowd_step_ratio <= 0 || !policy_.rules().may_crowd) return kUnbounded;
  if (look_for_other_prompts(draft.plan.step)) return 0;
  if (!pace_.knows()) return kUnbounded;
  const StepBudget& budget = draft.budget;
  const double seconds = options_.crowd_step_ratio * pace_.cost().seconds(budget.load);
  return std::max(kLeast, pace_.prompt_tokens_within(seconds, budget.load, 0, budget.tokens_left));
}

}  // namespace headrace
