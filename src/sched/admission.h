// Admission: how many pages must be free before a sequence may join, and how long admission is on
// hold after one found none. Together they keep preemption rare and end it: a sequence that was
// preempted a few times comes back only when nothing that runs can take its pages away again.
//
// Headroom: a sequence joins when the pages that it and all that run will hold at the worst moment
// to come are expected to be there. Each grows by a token a step until it ends, and then gives its
// pages back; how long that takes, the lengths of answers that ended lately tell. (The past-future
// scheduler: Gong et al., ASPLOS 2025.) It joins too where being computed again costs less than
// what it saves until memory runs out, by the measured cost of steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/output_lengths.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace headrace {

class AdmissionControl {
 public:
  // `options` outlives this object.
  explicit AdmissionControl(const SchedulerOptions& options);

  // Free pages that `candidate` needs in order to join what runs: its own next pages, those that
  // running prompts were promised, and a margin that grows with its preemptions. When nothing runs
  // check_request() has made sure that the pool has them.
  int64_t pages_required(const Sequence& candidate, std::span<Sequence* const> running) const;
  // Pages that running sequences were promised and do not hold yet: for the prompts being computed,
  // and for what their policy reserved.
  int64_t pages_promised(std::span<Sequence* const> running) const;

  // Whether `candidate` may join: `free_pages`, left when it has, are expected to cover what all
  // will hold at the worst moment, or joining pays all the same. `cost` null: not known. O(n log n)
  // of what runs; O(n) where memory is ample.
  bool leaves_headroom(const Sequence& candidate, std::span<Sequence* const> running,
                       int64_t free_pages, const StepCost* cost) const;

  // An answer that nobody cancelled has ended.
  void answer_ended(const Sequence& sequence) {
    lengths_.add(static_cast<int32_t>(sequence.output.size()));
  }
  // One that waited found no pages, beside `running` sequences: hold admission for
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

  // What a sequence, with its followers, does from now on: it takes `rate` pages a step for `steps`
  // steps, then all of them come back, with `pages` that it holds now.
  struct Trajectory {
    double steps = 0, rate = 0, pages = 0;
  };
  Trajectory trajectory_of(const Sequence& sequence) const;
  static bool pays(const Sequence& candidate, std::span<Sequence* const> running, double steps,
                   const StepCost* cost);

  const SchedulerOptions& options_;
  double pages_per_token_ = 0;  // of a sequence that grows, beyond its windows
  OutputLengths lengths_;
  // Scratch of leaves_headroom(), kept so that a call allocates nothing.
  mutable std::vector<Trajectory> trajectories_;
  int64_t finishes_to_wait_ = 0;
};

}  // namespace headrace
