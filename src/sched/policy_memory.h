// What a policy remembers of each sequence that has not ended, by its id.
#pragma once

#include <unordered_map>

#include "sched/queue_policy.h"
#include "sched/sequence.h"

namespace headrace {

template <class State>
class PolicyMemory {
 public:
  // Of a sequence that nothing was remembered of: State().
  State& of(const Sequence& sequence) { return states_[sequence.id]; }
  // REQUIRES: something is remembered of it
  const State& of(const Sequence& sequence) const { return states_.at(sequence.id); }

  // A follower takes over what is known of its leader; what has ended is forgotten.
  void follow(SequenceEvent event, const Sequence& sequence) {
    if (event == SequenceEvent::kForked) {
      const State leaders = of(*std::get<Waiting>(sequence.state).leader);
      of(sequence) = leaders;
    }
    if (event == SequenceEvent::kEnded) states_.erase(sequence.id);
  }

 private:
  std::unordered_map<SequenceId, State> states_;
};

}  // namespace headrace
