// Admission of waiting sequences: the one that the policy names joins while there are slots, pages
// and headroom for it, and other sequences give way to it where they should (displacement.h).
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
  // Whether admission is on hold, because one that waited found no pages.
  bool on_hold() const { return admission_.on_hold(); }
  // The same for `head`: but the promoted join, and the live where background sequences can give
  // way.
  bool held_back(const Sequence& head) const;
  // Whether the policy lets `head` join beside what runs. `batch`: what the plan knows of it.
  bool may_join(const Sequence& head, BatchView batch) const;
  // Whether what runs can be expected to grow to its end beside `head`. A sequence that may
  // displace others, or has pages reserved, joins without that.
  bool leaves_headroom(const Sequence& head, const PrefixMatch& hit) const;
  // Whether `head` could join now: budget is held back for it only then.
  bool has_room(const Sequence& head) const;

  // --- commands
  // Asks the policy which sequence joins next; null: none now. REQUIRES: a live one waits
  Sequence* name_next(uint64_t step);
  // Displaces sequences until there are slots for `head`. Returns whether the slots are free now: a
  // displaced sequence gives its slot when its last step was applied.
  bool make_slots(const Sequence& head);
  // The same for pages.
  bool make_pages(Sequence& head, const PrefixMatch& hit, uint64_t step);
  // Sequences that give way to the next in line do so before tokens are chosen: where no step in
  // flight has work for them, their slots are free in this very step. Returns the rank of the
  // sequence that joins next and the pages that it needs; nullopt: nothing gives way to it.
  struct Joining {
    Rank rank;
    int64_t pages = 0;
  };
  std::optional<Joining> make_room(uint64_t step);

 private:
  int32_t cached_tokens(const Sequence& waiting) const;
  // What the cache has of its tokens, where there are slots and pages for the rest; else nullopt.
  std::optional<PrefixMatch> find_fitting_prefix(const Sequence& waiting) const;

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
