// Packing by predicted length (S3: Jin et al., NeurIPS 2023): memory is reserved for the predicted
// bucket instead of max_tokens, and of those at the front of the queue the largest that fits joins
// (decreasing first fit). A sequence that outgrows its bucket gets the next one, in place where
// there is room; else it is preempted and queues for it.
#pragma once

#include "sched/length_predictor.h"
#include "sched/policy_memory.h"
#include "sched/queue_policy.h"

namespace headrace {

class PackedPredictedPolicy final : public QueuePolicy {
 public:
  static constexpr int kCandidatesMax = 32;
  // The bucket holds the answer with this probability: what is outgrown is preempted.
  static constexpr double kCertainty = 0.95;

  explicit PackedPredictedPolicy(const SchedulerOptions& options)
      // Memory that was reserved is kept: a promoted one that waits for much of it is next, and
      // waits for ends.
      : QueuePolicy({.may_starve = true, .promoted_displaces = false}),
        predictor_(options.max_model_len) {}
  Sequence* next(const StepView& view) override;
  int32_t reserved_length(Sequence& sequence) override;
  void note(SequenceEvent event, Sequence& sequence) override;

 private:
  struct State {
    int32_t bucket = 0;        // predicted length of the answer
    int64_t predicted_at = 0;  // answers that the predictor had learned from then
  };
  void predict(Sequence& sequence);
  void outgrow(Sequence& sequence);

  LengthPredictor predictor_;
  PolicyMemory<State> memory_;
};

}  // namespace headrace
