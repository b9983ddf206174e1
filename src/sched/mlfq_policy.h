// Skip-join multi-level feedback queue (FastServe, Wu et al. 2023): lengths are unknown, so what
// has run little goes first. Queue i has a quantum of q * 2^i seconds; q is the shortest step, a
// decode alone, by the measured cost of steps. A request joins the first queue whose quantum covers
// the step that computes its prompt, falls one queue when the steps that it was in have taken its
// quantum, and goes to the front after promote_after_steps without work. A waiting request of a
// better queue takes slots and pages of what runs in a worse one.
//
// It takes them only where that is expected to pay, by the lengths of the answers that ended
// lately: who gives way must have several times as much to go (what a demoted answer has to go
// says how much taking turns is worth), and what it loses must cost less time than is saved. Where
// lengths do not reward it nobody gives way, and what is left is a line by the time of the prompt.
//
// Keys and values of who gave way stay in the prefix cache, after all that nobody waits for; with a
// tier below the pool they are swapped (swapper.h).
#pragma once

#include <algorithm>

#include "sched/output_lengths.h"
#include "sched/policy_memory.h"
#include "sched/queue_policy.h"

namespace headrace {

class MlfqPolicy final : public QueuePolicy {
 public:
  static constexpr int32_t kQueues = 16;

  // Who gives way has so many times as much to go as who joins. (Answers of conversations never
  // have: at three no trace of them was slower than first come first served, and where lengths
  // reward taking turns one to three make no difference.)
  static constexpr double kRestRatio = 3;
  // A second that is lost delays all that are there, and all that come until nobody waits: at load
  // 0.95 twenty times as many.
  static constexpr double kDelayed = 20;

  // A promoted answer is long, and holds much memory until it ends: where memory is for few, a
  // sixteenth of the slots would be all that runs. So of what runs one in so many is.
  static constexpr int32_t kRunningPerPromoted = 12;

  // Of the machine's time, for computing again what was displaced.
  static constexpr double kDisplacementShare = 0.03;

  explicit MlfqPolicy(const SchedulerOptions& options)
      : QueuePolicy({.may_starve = true,
                     .running_per_promoted = kRunningPerPromoted,
                     .promoted_max = std::max(1, options.max_num_seqs / 16),
                     .displacement_share = kDisplacementShare,
                     .swaps_ahead = true}),
        quantum_seconds_(options.mlfq_quantum_seconds),
        lengths_(options.max_model_len) {}
  Rank rank(const Sequence& sequence) const override;
  bool preempts(const Sequence& waiting, const Sequence& running,
                double again_seconds) const override;
  double seconds_before(const Sequence& each, const Sequence& other) const override;
  StepShape shape(const StepView& view) override;
  bool served(Sequence& sequence, const Service& service) override;
  void note(SequenceEvent event, Sequence& sequence) override;

 private:
  struct State {
    int32_t queue = 0;
    double used_seconds = 0;  // of the queue's quantum
  };
  double quantum_of(int32_t queue) const;  // infinite while nothing is known of steps
  double tokens_to_go(const Sequence& sequence) const;

  const double quantum_seconds_;  // 0: as measured
  OutputLengths lengths_;
  PolicyMemory<State> memory_;
  // As of the step that was planned or applied last.
  const StepCost* cost_ = nullptr;  // null: not known
  double everybody_ = 0;            // that runs or waits
  double step_seconds_ = 0;
};

}  // namespace headrace
