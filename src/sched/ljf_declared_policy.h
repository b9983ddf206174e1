// Longest declared answer first: by max_tokens. For jobs of which the end counts and not the wait:
// the longest answers decide when the last one ends, so they begin first, and short ones fill the
// slots that become free (longest processing time first: Graham, Bounds on Multiprocessing Timing
// Anomalies, 1969).
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class LjfDeclaredPolicy final : public QueuePolicy {
 public:
  LjfDeclaredPolicy() : QueuePolicy({.may_starve = true}) {}
  Rank rank(const Sequence& sequence) const override {
    return {.key = -static_cast<double>(sequence.request->sampling.max_tokens)};
  }
};

}  // namespace headrace
