#include "sched/mlfq_policy.h"

#include <algorithm>

namespace headrace {

Rank MlfqPolicy::rank(const Sequence& sequence) const {
  return {.level = memory_.of(sequence).queue};
}

bool MlfqPolicy::preempts(const Sequence& waiting, const Sequence& running) const {
  return waiting.rank.level < running.rank.level;
}

void MlfqPolicy::note(SequenceEvent event, Sequence& sequence) {
  memory_.follow(event, sequence);
  if (event != SequenceEvent::kArrived) return;
  const auto prompt = static_cast<int64_t>(sequence.prompt_length() * kPromptWeight);
  int32_t queue = 0;
  while (queue + 1 < kQueues && quantum_of(queue) < prompt) ++queue;
  memory_.of(sequence).queue = queue;
}

bool MlfqPolicy::served(Sequence& sequence, int32_t, int32_t output_tokens) {
  State& state = memory_.of(sequence);
  state.service += output_tokens;
  if (state.service < quantum_of(state.queue) || state.queue + 1 == kQueues) return false;
  ++state.queue;
  state.service = 0;
  return true;
}

}  // namespace headrace
