// What a step brought to searches (beam_search.h): where all beams of one have their rows, the next
// beams take over pages and tokens of those that they go on from, or the search ends and its best
// answers are emitted.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "sched/admission.h"
#include "sched/queue_policy.h"
#include "sched/request.h"
#include "sched/sequence_table.h"
#include "sched/step_plan.h"

namespace headrace {

class BeamReader {
 public:
  // All outlive this object.
  BeamReader(QueuePolicy& policy, AdmissionControl& admission, SequenceTable& table)
      : policy_(policy), admission_(admission), table_(table) {}

  // The beam's row. Of one that gave way meanwhile it is dropped: it comes again.
  void take(Sequence& beam, const StepResult::Row& row);
  // Behind all rows of a step.
  void advance(double now_seconds, std::vector<Emission>& out);
  // A row of the search is NaN: all of its answers end so.
  void fault(RequestEntry& entry, std::vector<Emission>& out);
  uint64_t tokens() const { return tokens_; }  // that beams went on with

 private:
  void advance(RequestEntry& entry, double now_seconds, std::vector<Emission>& out);
  void move_on(RequestEntry& entry, const std::vector<BeamSearch::Child>& children,
               double now_seconds);
  void finish(RequestEntry& entry, std::vector<Emission>& out);
  void end_all(RequestEntry& entry);

  QueuePolicy& policy_;
  AdmissionControl& admission_;
  SequenceTable& table_;
  std::set<RequestId> touched_;  // searches that have rows of this step
  uint64_t tokens_ = 0;
};

}  // namespace headrace
