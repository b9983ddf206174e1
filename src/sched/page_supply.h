// What the pool and the prefix cache have for one sequence: how much of it is computed already, for
// how many of its tokens there are pages, and whether those that it lacks come free by themselves.
// It takes only free pages: which sequence gives way to which is decided elsewhere (displacement.h,
// page_securer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "kv/sequence_blocks.h"
#include "sched/admission.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"
#include "sched/step_plan.h"

namespace headrace {

class PageSupply {
 public:
  // All outlive this object. `cache` null: prefixes are not shared.
  PageSupply(const SchedulerOptions& options, BlockPool& pool, PrefixCache* cache,
             const AdmissionControl& admission)
      : options_(options), pool_(pool), cache_(cache), admission_(admission) {}

  // Prefixes are shared by requests of one key; valid while the request lives.
  static PrefixKey key_of(const Request& request);

  // --- of a sequence that waits, to join `running`
  // The longest cached prefix that the sequence can begin with. At least one token is left to
  // compute, because its logits are wanted. A request for the prompt's log-probabilities computes
  // the whole prompt.
  PrefixMatch find_prefix(const Sequence& head, std::span<Sequence* const> running) const;
  // Free pages that the sequence needs with this hit: pages that others hold are there already; a
  // shared page that it will write is copied.
  int64_t pages_to_join(const Sequence& head, const PrefixMatch& hit,
                        std::span<Sequence* const> running) const;
  // Free pages that adopt() takes at most.
  int64_t pages_to_adopt(const PrefixMatch& hit) const;
  // The sequence begins with the hit. Returns the plan after which those tokens can be used: the
  // one that loads the last of their pages.
  Ticket adopt(Sequence& head, const PrefixMatch& hit);

  // --- of a sequence that runs
  // Pages that the sequence's next `count` tokens need beside those it holds.
  int32_t pages_needed(const Sequence& sequence, int32_t count) const;
  // The longest chunk of at most `count` tokens for which `free_pages` are enough.
  int32_t longest_fit(const Sequence& sequence, int32_t count, int64_t free_pages) const;
  // Takes the pages of the sequence's next `count` tokens, for plan `step`. REQUIRES: they are free
  void grow(Sequence& sequence, int32_t count, Ticket step, std::vector<GroupBlocks>& new_blocks,
            std::vector<BlockCopy>& copies);
  // Tokens [0, length) are computed and their step was applied: whole units of them may be found.
  // `beyond`: the tokens behind the sequence's output, where length passes it.
  void cache_prefix(Sequence& sequence, int32_t length, TokenSpan beyond = {});
  // Of models that keep states. Where the work's states are saved: behind the last whole unit of a
  // prompt, less kPromptTail; where others went on differently; behind each unit of an answer, in
  // place of the one before, where that is its own. A prompt of a chat is often not what the next
  // turn begins with to its last tokens.
  static constexpr int32_t kPromptTail = 8;
  void plan_saves(const Sequence& sequence, Work& work);
  // The work's step was applied, and cache_prefix() was called: what was saved may be found.
  void note_saves(Sequence& sequence, const Work& work);
  int64_t saves_in_flight() const { return saves_in_flight_; }
  // What the sequence computed may be wrong: no other sequence shall find it. Where it began with a
  // checkpoint that may be wrong too, and what was computed between the one before and that: a
  // state is saved on the way, of rows that nobody looked at.
  void forget(Sequence& sequence);
  // Pages that the cache moves between the pool and its tiers since this was asked last.
  void collect_moves(StepPlan& plan);

  // --- pages kept for one that waits for them
  // Sequences behind `rank` leave so many of the free pages alone until this is called again: the
  // pages are for the sequence of that rank, which goes on or joins with them.
  void keep_for(const Rank& rank, int64_t pages) { kept_ = {rank, pages}; }
  void keep_for_nobody() { kept_.reset(); }
  bool keeps_pages() const { return kept_.has_value(); }
  bool stands_behind_kept(const Sequence& sequence) const {
    return kept_ && kept_->rank < sequence.rank;
  }
  int64_t free_pages_for(const Sequence& sequence) const;
  // Free pages, and those that come free by themselves.
  int64_t pages_to_come() const { return pool_.free_count() + pool_.fenced_count(); }

  // --- pages that steps in flight still refer to
  // All pages that the sequence lacks come free by themselves: it waits for them from plan `step`
  // on.
  void await(Sequence& sequence, uint64_t step) const;
  // Of the pages that come free by themselves, those that the sequence will not get by waiting, in
  // plan `step`: sliding windows of others take them again.
  int64_t turned_over(const Sequence& sequence, uint64_t step) const;

  // --- of a sequence that was preempted
  // Pins the victim's pages in the cache: they are evicted after all others.
  void pin(Sequence& victim);
  void unpin(Sequence& sequence);
  const std::vector<Sequence*>& pinned() const { return pinned_; }  // those with pinned pages
  uint64_t pin_changes() const { return pin_changes_; }             // of that list
  // Its pages in lower tiers.
  int32_t pages_to_load(const Sequence& preempted) const;
  // Loads them in plan `step`, into pages that nobody uses. REQUIRES: there are so many
  void load_ahead(const Sequence& preempted, Ticket step);
  // Stores so many of its pages of the pool, the last first, where that pays. Returns how many.
  int32_t store_ahead(const Sequence& preempted, int32_t pages);

  // Fills in the counters of the prefix cache and of pages that change tiers.
  void count(SchedulerStats& stats) const;

  // Tokens for which a sequence takes its pages when it first grows.
  int32_t reserve_tokens() const;

 private:
  void note_prefix(const Sequence& head, int32_t found_tokens);
  PrefixMatch longest_prefix(const Sequence& sequence, int32_t tokens_max) const;

  struct KeptPages {
    Rank rank;
    int64_t pages = 0;
  };

  const SchedulerOptions& options_;
  BlockPool& pool_;
  PrefixCache* const cache_;
  const AdmissionControl& admission_;
  std::optional<KeptPages> kept_;
  std::vector<Sequence*> pinned_;
  uint64_t pin_changes_ = 0;
  uint64_t loaded_ahead_ = 0;  // pages
  uint64_t prefix_queries_ = 0, prefix_hits_ = 0, resumed_tokens_ = 0;
  uint64_t states_saved_ = 0, states_restored_ = 0;
  int64_t saves_in_flight_ = 0;
};

}  // namespace headrace
