// Scheduling policies: the order of the queue and of the batch, when a waiting sequence may join,
// what a step is made of. A policy is a pair of files and a row in the table of queue_policy.cc;
// docs/scheduling.md explains them to an operator.
//
// The scheduler keeps three promises under every policy: the oldest running sequence by rank makes
// progress and gives its pages to no other that runs; no sequence joins with pages that others were
// promised; and where a sequence may starve, it goes before all others after promote_after_steps.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sched/request.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace headrace {

// What a policy may look at when the scheduler asks whether a sequence may join.
struct BatchView {
  int32_t rows_at_start = 0;      // slots taken when this plan began, finished rows included
  int32_t requests_running = 0;   // now, with what this plan has admitted
  int32_t requests_joined = 0;    // that this plan has admitted
  int32_t prompt_left = 0;        // the candidate's tokens that are still to be computed
  int32_t token_budget_left = 0;  // of this step, for them
  bool resumes = false;           // the candidate was preempted: it has run before
};

// What a policy may look at when a step is planned.
struct StepView {
  std::span<Sequence* const> running;  // by rank
  const WaitingQueue& queue;
  int32_t free_slots = 0;
  uint64_t step = 0;
  double now_seconds = 0;
  const StepCost* cost = nullptr;  // of steps, as measured; null: not known
  // Tokens of a waiting sequence that the prefix cache holds.
  const std::function<int32_t(const Sequence&)>& cached_tokens;
  // Whether there are pages for a waiting sequence.
  const std::function<bool(const Sequence&)>& fits;
};

// What a step may hold.
enum class StepShape : uint8_t {
  kMixed,   // decodes first, prompt chunks fill the rest
  kDecode,  // decodes alone; no sequence joins
  kPrefill  // prompts alone
};

// What holds under a policy for all sequences alike.
struct PolicyRules {
  // A sequence may wait for ever behind later ones: after promote_after_steps it is promoted to the
  // front, and stays there until it ends.
  bool may_starve = false;
  // At a time one sequence of so many that run may be promoted (at least one), and at most
  // promoted_max. 0: no bound.
  int32_t running_per_promoted = 0;
  int32_t promoted_max = std::numeric_limits<int32_t>::max();
  // A promoted sequence takes slots and memory from those behind it. Off: it is only the next to
  // join.
  bool promoted_displaces = true;
  // The share of the machine's time that recomputation after preempts() may take. When it is used
  // up, only promoted sequences displace others.
  double displacement_share = std::numeric_limits<double>::infinity();
  // After a waiting sequence found no pages admission is on hold for some finishes
  // (AdmissionControl).
  bool holds_after_refusal = false;
  // A finished sequence keeps its slot until the whole batch is done; with the second rule it is
  // also computed meanwhile, and keeps its memory.
  bool holds_finished_rows = false;
  bool computes_finished_rows = false;
  // A tenant may be crowding the machine now (crowds()).
  bool may_crowd = false;
  // With tiers below the pool, keys and values of who gave way are swapped out ahead of need and
  // back ahead of the turn (swapper.h, seconds_before()).
  bool swaps_ahead = false;
};

// What a step did for a sequence.
struct Service {
  int32_t prompt_tokens = 0, output_tokens = 0;  // computed, and not again
  double step_seconds = 0;                       // that the step took, whatever else was in it
};

// What happens to a sequence, as it happens.
enum class SequenceEvent : uint8_t {
  kArrived,
  kForked,  // it is about to start on the pages of Waiting::leader
  kQueued,  // of live sequences only, as the next
  kDequeued,
  kFinished,  // its output is whole
  kEnded  // for whatever reason; a cancelled choice that computes the prompt of others, with its
          // last work
};

class QueuePolicy {
 public:
  virtual ~QueuePolicy() = default;

  const PolicyRules& rules() const { return rules_; }

  // --- the line
  // The sequence's place in line. The scheduler asks when the sequence arrives, each time it is
  // queued again, and after service (served()).
  virtual Rank rank(const Sequence& sequence) const { return {.arrival = sequence.rank.arrival}; }
  // The policy looks at the first of the queue before next(). True: that sequence's rank has
  // changed.
  virtual bool reconsider(Sequence&, double /*now_seconds*/) { return false; }
  // The sequence of view.queue (not empty) that joins next; null: none in this step.
  virtual Sequence* next(const StepView& view) { return *view.queue.begin(); }
  // Whether a sequence may join the batch now.
  virtual bool admits(const BatchView& batch) const { return batch.token_budget_left > 0; }
  // The length in tokens for which pages must be there when the sequence joins; 0: its prompt and a
  // token. The pages are its own while it runs; when it has grown to that length (then it is
  // Decoding) the policy is asked again.
  virtual int32_t reserved_length(Sequence&) { return 0; }
  // Whether `running` gives way so that `waiting` can join, where computing it again is expected to
  // take so many seconds of the machine's time.
  virtual bool preempts(const Sequence& /*waiting*/, const Sequence& /*running*/,
                        double /*again_seconds*/) const {
    return false;
  }

  // How long `each`, which is before the waiting `other`, may run until it is behind it.
  virtual double seconds_before(const Sequence& /*each*/, const Sequence& /*other*/) const {
    return std::numeric_limits<double>::infinity();
  }

  // --- a step
  // What the next step may hold.
  virtual StepShape shape(const StepView&) { return StepShape::kMixed; }
  // How long a step with decodes may take: prompt chunks are cut to keep it.
  virtual double step_seconds(const StepView&) const {
    return std::numeric_limits<double>::infinity();
  }
  // Prompts that run share a step's budget in this order, smaller first; equals share it fairly.
  virtual double prompt_order(const Sequence&) const { return 0; }
  // Whether the sequence's tenant crowds the machine: its prompts are cut so that steps stay short
  // for requests of others.
  virtual bool crowds(const Sequence&) const { return false; }

  // --- events
  // A step computed something for the sequence. True: its rank has changed.
  virtual bool served(Sequence&, const Service&) { return false; }
  // The event has just happened to the sequence.
  virtual void note(SequenceEvent, Sequence&) {}

 protected:
  explicit QueuePolicy(const PolicyRules& rules = {}) : rules_(rules) {}

  PolicyRules rules_;  // may_crowd changes with what is served
};

// `options` outlives the policy. kInvalidArgument names the policies there are.
Result<std::unique_ptr<QueuePolicy>> create_queue_policy(const SchedulerOptions& options);
std::vector<std::string> queue_policy_names();  // fcfs first

}  // namespace headrace
