#include "sched/deadline_policy.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace headrace {
namespace {

// Tokens of an answer that may be late before the answer is taken to be behind: of Azure's chats
// one in a hundred is shorter.
constexpr double kGraceTokens = 12;
// A step is never cut below this share of the target: who is behind catches up by a tenth.
constexpr double kStepShareMin = 0.9;
// The late join where the answers that run take no more than this share of a step. Prompts need the
// rest: at capacity about two thirds of the time is theirs (conversation).
constexpr double kLateStepShare = 0.33;
// Sequences that are looked at, from the first in line.
constexpr int kLook = 256;

const SloClass& class_of(const std::vector<SloClass>& classes, const Sequence& sequence) {
  return classes.at(static_cast<size_t>(sequence.request->slo_class));
}

StepLoad decodes_of(const StepView& view) {
  StepLoad decodes;
  for (const Sequence* each : view.running) {
    if (each->is<Decoding>()) decodes.add_decode(each->extent.most);
  }
  return decodes;
}

}  // namespace

Rank DeadlinePolicy::rank(const Sequence& sequence) const {
  const State& state = memory_.of(sequence);
  return {.level = state.late ? 1 : 0, .key = state.deadline_seconds};
}

void DeadlinePolicy::note(SequenceEvent event, Sequence& sequence) {
  memory_.follow(event, sequence);
  if (event != SequenceEvent::kArrived) return;
  const double target = class_of(classes_, sequence).ttft_seconds;
  memory_.of(sequence).deadline_seconds = sequence.arrival_seconds + target;
}

bool DeadlinePolicy::reconsider(Sequence& first, double now_seconds) {
  if (first.rank.level == kPromotedLevel) return false;
  State& state = memory_.of(first);
  state.late = state.late || (first.output.empty() && now_seconds > state.deadline_seconds);
  return first.rank.level != (state.late ? 1 : 0);
}

Sequence* DeadlinePolicy::next(const StepView& view) {
  Sequence* first = *view.queue.begin();
  if (first->rank.level == kPromotedLevel) return first;
  if (looked_at_step_ != view.step) give_up_the_longest(view);
  looked_at_step_ = view.step;
  int looked = 0;
  for (Sequence* each : view.queue) {
    if (!memory_.of(*each).late) return each;
    if (++looked == kLook) break;
  }
  return has_room_for_late(view) ? first : nullptr;
}

// Nothing is known of costs: a late one is as good as any.
bool DeadlinePolicy::has_room_for_late(const StepView& view) const {
  if (view.cost == nullptr || view.running.empty()) return true;
  const bool prompts = std::any_of(view.running.begin(), view.running.end(),
                                   [](const Sequence* each) { return each->is<Prefilling>(); });
  const double step = classes_.front().tpot_seconds;
  return !prompts && view.cost->seconds(decodes_of(view)) <= kLateStepShare * step;
}

// Beside the decodes of now, in steps as long as the first class's target.
double DeadlinePolicy::prompt_pace(const StepView& view) const {
  if (view.cost == nullptr) return 0;
  const double step = classes_.front().tpot_seconds;
  const double left = std::max(0.1 * step, step - view.cost->seconds(decodes_of(view)));
  return view.cost->seconds_per_prompt_token() * step / left;
}

void DeadlinePolicy::give_up_the_longest(const StepView& view) {
  const double pace = prompt_pace(view);
  double end = view.now_seconds;
  for (const Sequence* each : view.running) {
    if (!each->is<Prefilling>() || memory_.of(*each).late) continue;
    end += pace * (each->known_length() - each->extent.most);
  }
  const auto shorter = [](const Sequence* a, const Sequence* b) {
    return a->known_length() < b->known_length();
  };
  std::priority_queue<Sequence*, std::vector<Sequence*>, decltype(shorter)> kept(shorter);
  int looked = 0;
  for (Sequence* each : view.queue) {  // by deadline
    if (++looked > kLook) return;
    const State& state = memory_.of(*each);
    if (state.late || !each->output.empty()) continue;
    end += pace * each->known_length();
    kept.push(each);
    if (end <= state.deadline_seconds) continue;
    end -= pace * kept.top()->known_length();
    memory_.of(*kept.top()).late = true;
    kept.pop();
  }
}

double DeadlinePolicy::step_seconds(const StepView& view) const {
  double limit = std::numeric_limits<double>::infinity();
  for (const Sequence* each : view.running) {
    if (!each->is<Decoding>() || each->output.empty()) continue;
    const double target = class_of(classes_, *each).tpot_seconds;
    const double tokens = std::max(kGraceTokens, static_cast<double>(each->output.size()));
    const double slack = each->first_token_seconds + tokens * target - view.now_seconds;
    limit = std::min(limit, std::max(slack, kStepShareMin * target));
  }
  return limit;
}

}  // namespace headrace
