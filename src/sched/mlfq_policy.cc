#include "sched/mlfq_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headrace {

Rank MlfqPolicy::rank(const Sequence& sequence) const {
  return {.level = memory_.of(sequence).queue};
}

StepShape MlfqPolicy::shape(const StepView& view) {
  cost_ = view.cost;
  everybody_ = static_cast<double>(view.running.size() + view.queue.size());
  return StepShape::kMixed;
}

double MlfqPolicy::quantum_of(int32_t queue) const {
  if (quantum_seconds_ > 0) return std::ldexp(quantum_seconds_, queue);
  if (cost_ == nullptr) return std::numeric_limits<double>::infinity();
  StepLoad decode;
  decode.add_decode(0);
  return std::ldexp(cost_->seconds(decode), queue);
}

double MlfqPolicy::tokens_to_go(const Sequence& sequence) const {
  const auto tokens = static_cast<int32_t>(sequence.output.size());
  const double most = sequence.request->sampling.max_tokens - tokens;
  return std::min(most, lengths_.rest_mean(tokens));
}

bool MlfqPolicy::preempts(const Sequence& waiting, const Sequence& running,
                          double again_seconds) const {
  if (waiting.rank.level >= running.rank.level) return false;
  const double rest = tokens_to_go(running), own = tokens_to_go(waiting);
  if (rest < kRestRatio * own) return false;
  // The one ends sooner by what the other has to go, and that one later by what the first has.
  const double saved = (rest - own) * step_seconds_;
  return kDelayed * everybody_ * again_seconds <= saved;
}

// The quanta of the queues between them, less what it has used of its own; or it ends before that.
double MlfqPolicy::seconds_before(const Sequence& each, const Sequence& other) const {
  const State& state = memory_.of(each);
  const double to_fall =
      quantum_of(memory_.of(other).queue) - quantum_of(state.queue) - state.used_seconds;
  const double own_turn = quantum_of(state.queue) - state.used_seconds;  // in the same queue
  return std::min(std::max(to_fall, own_turn), tokens_to_go(each) * step_seconds_);
}

void MlfqPolicy::note(SequenceEvent event, Sequence& sequence) {
  memory_.follow(event, sequence);
  if (event == SequenceEvent::kFinished) lengths_.add(static_cast<int32_t>(sequence.output.size()));
  if (event != SequenceEvent::kArrived) return;
  State& state = memory_.of(sequence);
  if (cost_ == nullptr) return;
  StepLoad prompt;
  prompt.add_prompt(0, sequence.prompt_length());
  const double seconds = cost_->seconds(prompt);
  while (state.queue + 1 < kQueues && quantum_of(state.queue) < seconds) ++state.queue;
}

bool MlfqPolicy::served(Sequence& sequence, const Service& service) {
  step_seconds_ = service.step_seconds;
  State& state = memory_.of(sequence);
  state.used_seconds += service.step_seconds;
  if (state.used_seconds < quantum_of(state.queue) || state.queue + 1 == kQueues) return false;
  ++state.queue;
  state.used_seconds = 0;
  return true;
}

}  // namespace headrace
