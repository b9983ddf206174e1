// Shortest predicted answer first: of those at the front of the queue the one with the least bucket
// of the predicted median length, first come first served inside a bucket. Where lengths cannot be
// predicted all buckets are alike, and so it is fcfs.
#pragma once

#include "sched/length_predictor.h"
#include "sched/policy_memory.h"
#include "sched/queue_policy.h"

namespace headrace {

class SjfPredictedPolicy final : public QueuePolicy {
 public:
  explicit SjfPredictedPolicy(const SchedulerOptions& options)
      : QueuePolicy({.may_starve = true}), predictor_(options.max_model_len) {}
  static constexpr int kCandidatesMax = 256;
  Sequence* next(const StepView& view) override;
  void note(SequenceEvent event, Sequence& sequence) override;

 private:
  struct State {
    int32_t bucket = 0;        // predicted length of the answer
    int64_t predicted_at = 0;  // answers that the predictor had learned from then
  };
  LengthPredictor predictor_;
  PolicyMemory<State> memory_;
};

}  // namespace headrace
