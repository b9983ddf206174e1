// Who runs: the order of the queue and of the batch, when a waiting sequence may join, what a step
// is made of. A policy is a pair of files and a row in the table of queue_policy.cc;
// docs/scheduling.md explains them to an operator.
//
// The scheduler keeps three promises under every policy: the first by rank of what runs makes
// progress and gives its pages to nobody that runs; nobody joins with pages that others were
// promised; and where somebody may starve, who has waited for promote_after_steps goes before all
// others (promote()).
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
  int32_t rows_at_start = 0;         // slots taken when this plan began, finished rows included
  int32_t requests_running = 0;      // now, with what this plan has admitted
  int32_t sequences_prefilling = 0;  // of those running
  int32_t token_budget_left = 0;     // of this step
  bool resumes = false;              // the candidate was preempted: it has run before
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
  kDecode,  // decodes alone; nobody joins
  kPrefill  // prompts alone
};

class QueuePolicy {
 public:
  virtual ~QueuePolicy() = default;

  // Place in line, when it arrives, each time it is queued again, and after service (see served).
  virtual Rank rank(const Sequence& sequence) const { return {.arrival = sequence.rank.arrival}; }
  // Whether somebody may wait for ever behind later ones: then promote() ends it.
  virtual bool may_starve() const { return false; }
  // It has waited for promote_after_steps.
  virtual void promote(Sequence& sequence) {
    sequence.rank.level = kPromotedLevel;
    sequence.rank.key = 0;  // among the promoted: first come first served
  }

  // Who joins next, of view.queue (not empty); null: nobody in this step.
  virtual Sequence* next(const StepView& view) { return *view.queue.begin(); }
  virtual bool admits(const BatchView& batch) const { return batch.token_budget_left > 0; }
  // The length for which pages must be there when it joins; 0: its prompt and a token. The pages
  // are its own as long as it runs and does not grow beyond it.
  virtual int32_t reserved_length(const Sequence&) const { return 0; }
  // Whether `running`, the last by rank, is preempted so that `waiting` can join.
  virtual bool preempts(const Sequence& /*waiting*/, const Sequence& /*running*/) const {
    return false;
  }
  // Share of the machine's time that computing again what preempts() displaced may take. Where it
  // is used up nobody is displaced but by the promoted.
  virtual double displacement_share() const { return std::numeric_limits<double>::infinity(); }
  // Whether another may be promoted now; who has waited longest is asked for again.
  virtual bool may_promote(size_t /*running*/) const { return true; }
  // Whether a promoted sequence takes slots and memory from those behind it; else it is only the
  // next to join.
  virtual bool promoted_displaces() const { return true; }
  // Prompts that run share a step's budget in this order, smaller first; equals share it fairly.
  virtual double prompt_order(const Sequence&) const { return 0; }
  // Whether its prompts make room for others who may come: they are cut so that steps stay short.
  virtual bool crowds(const Sequence&) const { return false; }
  virtual bool bounds_crowds() const { return false; }  // whether anybody may
  virtual StepShape shape(const StepView&) { return StepShape::kMixed; }
  // How long a step with decodes may take: prompt chunks are cut to keep it.
  virtual double step_seconds(const StepView&) const {
    return std::numeric_limits<double>::infinity();
  }
  // Whether nobody joins for some finishes after one found no pages (AdmissionControl's hold), and
  // not only after what runs found none.
  virtual bool holds_after_refusal() const { return false; }
  // Whether a finished sequence keeps its slot until the whole batch is done.
  virtual bool holds_finished_rows() const { return false; }
  // And is computed meanwhile, with all its memory.
  virtual bool computes_finished_rows() const { return false; }

  // The first of the queue, before it is asked to join. True: its rank has changed.
  virtual bool reconsider(Sequence&, double /*now_seconds*/) { return false; }
  // It grew to its reserved_length(), which is then asked for again.
  virtual void overran(Sequence&) {}

  // What happens, as it happens.
  virtual void arrived(Sequence&) {}
  virtual void queued(Sequence&) {}
  virtual void dequeued(Sequence&) {}
  // Tokens were computed for it. True: its rank has changed.
  virtual bool served(Sequence&, int32_t /*prompt_tokens*/, int32_t /*output_tokens*/) {
    return false;
  }
  virtual void finished(const Sequence&) {}  // its output is whole
  // For whatever reason; a cancelled choice that computes the prompt of others, with its last work.
  virtual void ended(const Sequence&) {}
};

// `options` outlives the policy. kInvalidArgument names the policies there are.
Result<std::unique_ptr<QueuePolicy>> create_queue_policy(const SchedulerOptions& options);
std::vector<std::string> queue_policy_names();  // fcfs first

}  // namespace headrace
