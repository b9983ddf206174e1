// Skip-join multi-level feedback queue (FastServe, Wu et al. 2023): lengths are unknown, so what
// has run little goes first. Queue i has a quantum of q * 2^i tokens; a request joins the first
// queue whose quantum covers its prompt (a prompt token counts kPromptWeight of a decode step),
// falls one queue when it has used its quantum, and returns to the first after promote_after_steps
// without work. A waiting request of a better queue takes slots and pages of what runs in a worse
// one.
//
// FastServe swaps KV to the host; here what was computed stays in the prefix cache until its memory
// is needed, and is computed again where it was lost.
#pragma once

#include <algorithm>

#include "sched/policy_memory.h"
#include "sched/queue_policy.h"

namespace headrace {

class MlfqPolicy final : public QueuePolicy {
 public:
  static constexpr int32_t kQueues = 12;
  // 64 prompt tokens cost about what a decode step does, in weights read (CPU 135M, H200 8B alike).
  static constexpr double kPromptWeight = 1.0 / 64;

  // A promoted answer is long, and holds much memory until it ends: where memory is for few, a
  // sixteenth of the slots would be all that runs. So of what runs one in so many is.
  static constexpr int32_t kRunningPerPromoted = 12;

  // Of the machine's time, for computing again what was displaced.
  static constexpr double kDisplacementShare = 0.03;

  explicit MlfqPolicy(const SchedulerOptions& options)
      : QueuePolicy({.may_starve = true,
                     .running_per_promoted = kRunningPerPromoted,
                     .promoted_max = std::max(1, options.max_num_seqs / 16),
                     .displacement_share = kDisplacementShare}),
        quantum_(options.mlfq_quantum) {}
  Rank rank(const Sequence& sequence) const override;
  bool preempts(const Sequence& waiting, const Sequence& running) const override;
  bool served(Sequence& sequence, int32_t prompt_tokens, int32_t output_tokens) override;
  void note(SequenceEvent event, Sequence& sequence) override;

 private:
  struct State {
    int32_t queue = 0;
    int64_t service = 0;  // used of the queue's quantum, in tokens
  };
  int64_t quantum_of(int32_t queue) const { return int64_t{quantum_} << queue; }

  const int32_t quantum_;
  PolicyMemory<State> memory_;
};

}  // namespace headrace
