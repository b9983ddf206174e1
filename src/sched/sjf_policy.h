// Shortest predicted answer first: of those at the front of the queue the one with the least bucket
// of the predicted median length, first come first served inside a bucket. Where lengths cannot be
// predicted all buckets are alike, and so it is fcfs.
#pragma once

#include "sched/length_predictor.h"
#include "sched/queue_policy.h"

namespace headrace {

class SjfPredictedPolicy final : public QueuePolicy {
 public:
  explicit SjfPredictedPolicy(const SchedulerOptions& options)
      : predictor_(options.max_model_len) {}
  static constexpr int kCandidatesMax = 256;
  bool may_starve() const override { return true; }
  Sequence* next(const StepView& view) override;
  void finished(const Sequence& sequence) override;

 private:
  LengthPredictor predictor_;
};

}  // namespace headrace
