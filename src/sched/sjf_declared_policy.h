// Shortest declared answer first: by max_tokens. For clients that know how long their answers get;
// with true lengths declared it is what sjf-predicted is measured against.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class SjfDeclaredPolicy final : public QueuePolicy {
 public:
  SjfDeclaredPolicy() : QueuePolicy({.may_starve = true}) {}
  Rank rank(const Sequence& sequence) const override {
    return {.key = static_cast<double>(sequence.request->sampling.max_tokens)};
  }
};

}  // namespace headrace
