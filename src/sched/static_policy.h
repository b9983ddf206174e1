// Static batching, the baseline: requests start together, and a finished row holds its slot until
// the whole batch is done.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class StaticPolicy final : public QueuePolicy {
 public:
  bool admits(const BatchView& batch) const override;
  bool holds_finished_rows() const override { return true; }
};

}  // namespace headrace
