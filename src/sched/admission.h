// Admission: how many pages must be free before a sequence may join, and how long nobody joins
// after the pool ran out. Together they keep preemption rare and end it: a sequence that was
// preempted twice comes back only when nothing that runs can take its pages away again.
#pragma once

#include <cstdint>
#include <span>

#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace headrace {

class AdmissionControl {
 public:
  // `options` outlives this object.
  explicit AdmissionControl(const SchedulerOptions& options) : options_(options) {}

  // Free pages that `candidate` needs in order to join what runs: its own next pages, those that
  // running prompts were promised, and a margin that grows with its preemptions. When nothing runs
  // check_request() has made sure that the pool has them.
  int64_t pages_required(const Sequence& candidate, std::span<Sequence* const> running) const;
  // Pages that running sequences were promised and do not hold yet: for the prompts being computed,
  // and for what their policy reserved.
  int64_t pages_promised(std::span<Sequence* const> running) const;

  // The pool ran out in a step with `running` sequences: hold admission for
  // min(max(1, 0.1 * running), cooldown) finishes (OpenPPL).
  void allocation_failed(int64_t running);
  void sequence_ended();
  bool on_hold() const { return finishes_to_wait_ > 0; }

 private:
  // Pages that a sequence (with the followers that wait for it) holds when `length` tokens of each
  // are computed.
  int64_t pages_at(const Sequence& sequence, int32_t length) const;
  int64_t pages_next(const Sequence& sequence) const;   // when it samples for the first time
  int64_t pages_final(const Sequence& sequence) const;  // when it is as long as it can get
  int64_t pages_owed(const Sequence& sequence) const;   // of pages_promised()

  const SchedulerOptions& options_;
  int64_t finishes_to_wait_ = 0;
};

}  // namespace headrace
