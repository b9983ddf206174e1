// Who runs: the order of the queue and when a request may join the batch. A policy is a pair of
// files and a row in the table of queue_policy.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "sched/request.h"
#include "sched/sequence.h"

namespace headrace {

// What a policy may look at when the scheduler asks whether the head of the queue may join.
struct BatchView {
  int32_t rows_at_start = 0;      // slots taken when this plan began, finished rows included
  int32_t requests_running = 0;   // now, with what this plan has admitted
  int32_t token_budget_left = 0;  // of this step
  bool resumes = false;           // the candidate was preempted: it has run before
};

class QueuePolicy {
 public:
  virtual ~QueuePolicy() = default;
  virtual Rank rank(const Request& request, uint64_t arrival) const {
    return {request.priority, arrival, 0};
  }
  virtual bool admits(const BatchView& batch) const = 0;
  // Whether a finished sequence keeps its slot until the whole batch is done.
  virtual bool holds_finished_rows() const { return false; }
};

// kInvalidArgument names the policies there are.
Result<std::unique_ptr<QueuePolicy>> create_queue_policy(std::string_view name);
// "fcfs, one-at-a-time, static"
std::string queue_policy_names();

}  // namespace headrace
