#include "sched/mlfq_policy.h"

#include <algorithm>

namespace headrace {

Rank MlfqPolicy::rank(const Sequence& sequence) const { return {.level = sequence.policy.level}; }

void MlfqPolicy::promote(Sequence& sequence) {
  QueuePolicy::promote(sequence);
  promoted_.insert(sequence.id);
}

bool MlfqPolicy::preempts(const Sequence& waiting, const Sequence& running) const {
  return waiting.rank.level < running.rank.level;
}

void MlfqPolicy::arrived(Sequence& sequence) {
  const auto prompt = static_cast<int64_t>(sequence.prompt_length() * kPromptWeight);
  int32_t queue = 0;
  while (queue + 1 < kQueues && quantum_of(queue) < prompt) ++queue;
  sequence.policy.level = queue;
}

bool MlfqPolicy::served(Sequence& sequence, int32_t, int32_t output_tokens) {
  PolicyState& state = sequence.policy;
  state.service += output_tokens;
  if (state.service < quantum_of(state.level) || state.level + 1 == kQueues) return false;
  ++state.level;
  state.service = 0;
  return true;
}

}  // namespace headrace
