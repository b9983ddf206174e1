#include "sched/sjf_policy.h"

namespace headrace {

Rank SjfPredictedPolicy::rank(const Sequence& sequence) const {
  return {.key = static_cast<double>(sequence.policy.bucket)};
}

void SjfPredictedPolicy::arrived(Sequence& sequence) {
  sequence.policy.bucket = predictor_.knows() ? predictor_.bucket_at(*sequence.request, 0.5) : 0;
}

void SjfPredictedPolicy::finished(const Sequence& sequence) {
  predictor_.learn(*sequence.request, static_cast<int32_t>(sequence.output.size()));
}

}  // namespace headrace
