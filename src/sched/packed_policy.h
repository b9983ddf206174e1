// Packing by predicted length (S3: Jin et al., NeurIPS 2023): memory is reserved for the predicted
// bucket instead of max_tokens, and of those at the front of the queue the largest that fits joins
// (decreasing first fit). Who outgrows his bucket gets the next one, in place where there is room,
// else he is preempted and queues for it.
#pragma once

#include "sched/length_predictor.h"
#include "sched/queue_policy.h"

namespace headrace {

class PackedPredictedPolicy final : public QueuePolicy {
 public:
  static constexpr int kCandidatesMax = 32;
  // The bucket holds the answer with this probability: what is outgrown is preempted.
  static constexpr double kCertainty = 0.95;

  explicit PackedPredictedPolicy(const SchedulerOptions& options)
      : predictor_(options.max_model_len) {}
  bool may_starve() const override { return true; }
  Sequence* next(const StepView& view) override;
  // Memory that was reserved is kept: who waits for much of it is next, and waits for ends.
  bool promoted_displaces() const override { return false; }
  int32_t reserved_length(const Sequence& sequence) const override;
  void overran(Sequence& sequence) override;
  void arrived(Sequence& sequence) override;
  void finished(const Sequence& sequence) override;

 private:
  void predict(Sequence& sequence) const;

  LengthPredictor predictor_;
};

}  // namespace headrace
