// Who joins what runs: whom the policy names, while there are slots, pages and headroom for it, and
// room made by those that give way to it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "kv/prefix_cache.h"
#include "sched/admission.h"
#include "sched/displacement.h"
#include "sched/page_supply.h"
#include "sched/queue_policy.h"
#include "sched/sequence_table.h"
#include "sched/step_pace.h"

namespace headrace {

class Admitter {
 public:
  // All outlive this object.
  Admitter(const SchedulerOptions& options, QueuePolicy& policy, const BlockPool& pool,
           PageSupply& supply, AdmissionControl& admission, SequenceTable& table,
           const StepPace& pace, const Displacement& displacement);
  Admitter(const Admitter&) = delete;
  Admitter& operator=(const Admitter&) = delete;

  // What the policy may look at in plan `step`.
  StepView view(uint64_t step) const;

  // --- queries
  // Whether nobody joins for a while, since a step ran out of pages.
  bool on_hold() const { return admission_.on_hold(); }
  // The same for `head`: but the promoted join, and the live where background sequences can give
  // way.
  bool held_back(const Sequence& head) const;
  // Whether the policy lets it join beside what runs, with so much budget for it. Nobody joins past
  // the one that was named.
  bool may_join(const Sequence& head, int32_t token_budget_left) const;
  // Whether those that run can be expected to grow to their ends beside it. Who may displace
  // others, or has pages of its own, does not ask.
  bool leaves_headroom(const Sequence& head, const PrefixMatch& hit) const;
  // Whether it could join now: who holds something back for it must not do so in vain.
  bool has_room(const Sequence& head) const;

  // --- commands
  // Asks the policy who joins next; null: nobody now. REQUIRES: somebody live waits
  Sequence* name_next(uint64_t step);
  // Slots for it, taken from those that give way. Whether they are free now: what is preempted
  // gives its slot when its last step was applied.
  bool make_slots(const Sequence& head);
  // The same for pages.
  bool make_pages(Sequence& head, const PrefixMatch& hit, uint64_t step);
  // Who gives way to the next in line does so before tokens are chosen: where no step in flight has
  // work for it, its slot is free in this very step. Who joins next, and the pages that it lacks,
  // where there is somebody to give way.
  struct Joining {
    Rank rank;
    int64_t pages = 0;
  };
  std::optional<Joining> make_room(uint64_t step);

 private:
  int32_t cached_tokens(const Sequence& waiting) const;
  bool fits(const Sequence& waiting) const;

  const SchedulerOptions& options_;
  QueuePolicy& policy_;
  const BlockPool& pool_;
  PageSupply& supply_;
  AdmissionControl& admission_;
  SequenceTable& table_;
  const StepPace& pace_;
  const Displacement& displacement_;
  const std::function<int32_t(const Sequence&)> cached_tokens_;  // for views
  const std::function<bool(const Sequence&)> fits_;
};

}  // namespace headrace
