// Static batching, the baseline: requests start together, and a finished row holds its slot until
// the whole batch is done. Where batches have one shape (HF generate, FasterTransformer) such a row
// is computed to the end of the batch and keeps its memory: that is the default. With
// static_computes_ended_rows off only its slot is held.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class StaticPolicy final : public QueuePolicy {
 public:
  explicit StaticPolicy(const SchedulerOptions& options)
      : QueuePolicy({.holds_finished_rows = true,
                     .computes_finished_rows = options.static_computes_ended_rows}) {}
  bool admits(const BatchView& batch) const override;
};

}  // namespace headrace
