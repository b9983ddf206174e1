#include "sched/background_work.h"

#include <algorithm>
#include <cmath>

namespace headrace {

bool BackgroundWork::any() const {
  return !table_.line().background().empty() || table_.running().has_background();
}

// Decodes first. Where no live sequence runs, the oldest is of the background. It must get its
// token here too: when all pages are held it can preempt all others, and the youngest none; were
// the whole budget the youngest's, for a decode, neither would ever go on.
void BackgroundWork::choose_tokens(StepDraft& draft, int32_t kept_for_oldest) const {
  const StepShape shape = draft.terms.shape;
  StepBudget& budget = draft.budget;
  const auto goes_on_anyway = [&](const Sequence& sequence) {
    return table_.nobody_live() && &sequence == &table_.running().oldest_to_go_on();
  };
  for (DraftEntry& candidate : draft.candidates) {
    const Sequence& sequence = *candidate.sequence;
    if (!sequence.rank.background || !sequence.is<Decoding>() || shape == StepShape::kPrefill)
      continue;
    if (budget.tokens_left <= kept_for_oldest || !sequence.can_decode()) continue;
    StepLoad one;
    one.add_decode(sequence.extent.most);
    const double with_it = pace_.cost().seconds(budget.load + one);
    if (!goes_on_anyway(sequence) && with_it > step_seconds()) break;
    candidate.count = 1;
    budget.take(sequence, sequence.extent.most, 1);
  }
  for (DraftEntry& candidate : draft.candidates) {
    const Sequence& sequence = *candidate.sequence;
    if (!sequence.rank.background || !sequence.is<Prefilling>() || shape == StepShape::kDecode)
      continue;
    const int32_t left = sequence.unplanned_prompt();
    int32_t room = std::min(left, prompt_tokens(budget, sequence));
    if (goes_on_anyway(sequence)) room = std::max(room, std::min(left, kept_for_oldest));
    if (!options_.chunked_prefill && room < left) continue;
    candidate.count = pace_.chunk(budget, sequence.extent.most, room);
    budget.take(sequence, sequence.extent.most, candidate.count);
  }
}

// Alone it goes on, however little the bound leaves.
void BackgroundWork::bound_rest(StepBudget& budget, const Sequence& first) const {
  const int32_t least = table_.running().empty() ? 1 : 0;
  budget.tokens_left = std::min(budget.tokens_left, std::max(least, prompt_tokens(budget, first)));
}

double BackgroundWork::step_seconds() const {
  if (table_.nobody_live()) return gap_seconds();
  // Nothing is known: no step is short for certain. What is known is only so good.
  return pace_.knows() ? options_.background.step_seconds / beside_overrun_.ratio() : -1;
}

double BackgroundWork::gap_seconds() const {
  const bool lately = pace_.now() - live_seconds_ <= kLiveLatelySeconds;
  // A prompt that may not be cut would wait for as long as live requests come.
  if (!lately || options_.background.gap_seconds <= 0 || !options_.chunked_prefill ||
      !pace_.knows()) {
    return std::numeric_limits<double>::infinity();
  }
  StepLoad shortest;
  shortest.add_decode(0);
  return std::max(options_.background.gap_seconds, 2 * pace_.cost().seconds(shortest));
}

// Of a sequence's prompt, as much as fits into the step by its cost.
int32_t BackgroundWork::prompt_tokens(const StepBudget& budget, const Sequence& sequence) const {
  const double limit = step_seconds();
  if (std::isinf(limit)) return budget.tokens_left;
  return pace_.prompt_tokens_within(limit, budget.load, sequence.extent.most, budget.tokens_left);
}

void BackgroundWork::note_live_work() {
  if (!table_.nobody_live()) live_seconds_ = pace_.now();
}

void BackgroundWork::note_room(const StepDraft& draft) {
  if (table_.line().background().empty() || !pace_.knows()) return;
  const StepPlan& plan = draft.plan;
  StepLoad live;
  for (size_t i = 0; i < plan.work.size(); ++i) {
    if (!draft.sequences[i]->rank.background) live.add(plan.work[i]);
  }
  if (live.rows() == 0) return;  // the whole step is theirs
  const StepLoad& all = draft.load;
  const int32_t more = pace_.prompt_tokens_within(
      step_seconds(), all, 0, options_.max_num_batched_tokens - plan.token_count);
  const auto used_tokens = static_cast<uint64_t>(all.rows() - live.rows());
  used_tokens_ += used_tokens;
  room_tokens_ += used_tokens + static_cast<uint64_t>(more);
  const double taken = pace_.cost().seconds(live);
  const double room = std::max(0.0, options_.background.step_seconds - taken);
  const double used = pace_.cost().seconds(all) - taken;
  room_seconds_ += room;
  used_seconds_ += std::min(room, used);  // live work may join after it
}

// Whether it cost live answers more than they were promised: a live prompt makes its step long by
// itself.
void BackgroundWork::note_applied(const StepPlan& plan, std::span<Sequence* const> sequences,
                                  const StepPace::Measured& step) {
  uint64_t background = 0;
  bool live = false, live_prompt = false;
  for (size_t i = 0; i < plan.work.size(); ++i) {
    if (sequences[i]->rank.background) {
      background += static_cast<uint64_t>(plan.work[i].count);
    } else {
      live = true;
      live_prompt = live_prompt || plan.work[i].count > 1;
    }
  }
  computed_tokens_ += background;
  if (background == 0 || !live || live_prompt || step.seconds <= 0) return;
  ++beside_steps_;
  if (step.seconds > options_.background.step_seconds) ++beside_steps_over_;
  beside_seconds_ += step.seconds;
  beside_seconds_max_ = std::max(beside_seconds_max_, step.seconds);
  beside_overrun_.note(step.seconds, step.predicted);
}

void BackgroundWork::count(SchedulerStats& stats) const {
  stats.background_room_seconds = room_seconds_;
  stats.background_used_seconds = used_seconds_;
  stats.background_room_tokens = room_tokens_;
  stats.background_used_tokens = used_tokens_;
  stats.background_tokens = computed_tokens_;
  stats.beside_steps = beside_steps_;
  stats.beside_steps_over = beside_steps_over_;
  stats.beside_seconds = beside_seconds_;
  stats.beside_seconds_max = beside_seconds_max_;
}

}  // namespace headrace
