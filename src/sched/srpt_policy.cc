#include "sched/srpt_policy.h"

namespace headrace {
namespace {

// A preempted sequence computes its tokens again: as much must be won.
constexpr double kMargin = 1.25;

int32_t remaining(const Sequence& sequence) {
  return sequence.request->sampling.max_tokens - static_cast<int32_t>(sequence.output.size());
}

}  // namespace

Rank SrptDeclaredPolicy::rank(const Sequence& sequence) const {
  return {.key = static_cast<double>(remaining(sequence))};
}

bool SrptDeclaredPolicy::preempts(const Sequence& waiting, const Sequence& running, double) const {
  return running.rank.level != kPromotedLevel && kMargin * remaining(waiting) < remaining(running);
}

}  // namespace headrace
