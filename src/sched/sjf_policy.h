// Shortest predicted answer first: the queue is ordered by the bucket of the predicted median
// length, first come first served inside a bucket. Where lengths cannot be predicted all buckets
// are alike, and so it is fcfs.
#pragma once

#include "sched/length_predictor.h"
#include "sched/queue_policy.h"

namespace headrace {

class SjfPredictedPolicy final : public QueuePolicy {
 public:
  explicit SjfPredictedPolicy(const SchedulerOptions& options)
      : predictor_(options.max_model_len) {}
  Rank rank(const Sequence& sequence) const override;
  bool may_starve() const override { return true; }
  void arrived(Sequence& sequence) override;
  void finished(const Sequence& sequence) override;

 private:
  LengthPredictor predictor_;
};

}  // namespace headrace
