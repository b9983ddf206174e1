// The scheduler: requests in, one StepPlan at a time out. Owns every sequence and the KV block
// bookkeeping; knows no tensor, no text, and no clock but the one it is given. One thread.
//
// plan() may be called while at most `steps_in_flight_max` earlier plans are not yet applied;
// apply() takes them in order. A sequence that turns out to have finished while a later step is in
// flight is retiring: that step's token is dropped and its blocks go when no step in flight refers
// to them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "kv/kv_demand.h"
#include "kv/kv_group.h"
#include "kv/page_times.h"
#include "kv/prefix_cache.h"
#include "kv/tier_pool.h"
#include "sched/proposal_options.h"
#include "sched/request.h"
#include "sched/step_cost.h"
#include "sched/step_plan.h"

namespace headrace {

// What a class of requests is promised, in seconds.
struct SloClass {
  std::string name;
  double ttft_seconds = 0;  // from arrival to the first token
  double tpot_seconds = 0;  // from then on, per token
};

// waiting-ratio: decodes pause for prompts when waiting >= ratio x running, or after so many steps
// in which a request waited (TGI's names and defaults).
struct WaitingRatioOptions {
  double served_ratio = 1.2;
  int32_t max_tokens = 20;
};

struct OpenPplOptions {
  int32_t joining_max = 8;  // requests that join in one step
  // After a request found no pages none joins until min(max(1, 0.1 x running), this many) sequences
  // have finished (OpenPPL's cooldown). 0 = off.
  int32_t cooldown_max = 8;
};

// Over it a request is refused; 0: no bound.
struct QueueBounds {
  int64_t tokens = 0;  // of prompts that wait
  double seconds = 0;  // of the predicted wait
};

// How long steps with background work may take, by their measured cost (step_cost.h).
struct BackgroundBounds {
  double step_seconds = 0.006;  // while live requests have work
  // This share of such steps beside live answers may take longer, because steps scatter.
  double over_share = 0.02;
  // A step of background work alone takes no longer than this while live requests come and go (the
  // last one had work less than kLiveLatelySeconds ago): the next one to arrive waits for the rest
  // of the step. Twice the shortest step is allowed in any case. 0: no bound.
  double gap_seconds = 0.006;
};

// Of stages that compute steps side by side: parts of what runs, of which a step has one. No
// sequence is in two steps that are in flight, but for the chunks of a prompt.
struct Cohorts {
  int32_t count = 1;
  // As many as steps may be in flight where each then has this many decodes or more: a step is
  // planned while all stages have one. 0: never more than `count`.
  int32_t decodes_of_more = 0;
};

struct SchedulerOptions {
  int32_t max_num_seqs = 64;             // slots; each choice of a request takes one
  int32_t max_num_batched_tokens = 512;  // token budget of a step
  int32_t max_model_len = 2048;
  int32_t max_queued_requests = 256;
  QueueBounds queue_bounds;
  int32_t steps_in_flight_max = 1;
  Cohorts cohorts;
  std::string policy = "fcfs";  // queue_policy_names()
  bool chunked_prefill = true;  // off: a prompt is computed in one step or waits
  // Prompt chunks beside decodes are cut so that a step takes no longer than this (step_cost.h); 0:
  // they fill every step to max_num_batched_tokens (SplitFuse). Needs `clock`.
  double tpot_target_seconds = 0;
  // This share of the steps with decodes may take longer than the target: they are full steps,
  // spent on the ends of prompts, where keys and values make chunks small.
  double tpot_over_share = 0;
  // No step with decodes takes longer than this, full steps included: the pause that a long prompt
  // puts between the tokens of others. 0: no bound. Needs `clock`.
  double step_seconds_max = 0;
  BackgroundBounds background;      // of steps with Request::background; needs `clock`
  std::vector<KvGroupSpec> groups;  // from the model
  int32_t block_count = 0;          // pages of the pool, shared by all groups
  std::vector<TokenId> end_ids;     // of the model and its generation config
  KvAllocation allocation = KvAllocation::kPaged;
  // A sequence joins only where free pages are left for the expected growth of all that run; each
  // answer is taken to get so many times as long as recent answers say (admission.h). 0 = off.
  double admission_headroom = 1.5;
  // Prefixes computed before are shared (kv/prefix_cache.h). Only with KvAllocation::kPaged.
  bool enable_prefix_caching = true;
  std::string prefix_cache_eviction = "lru";  // lru, lfu, cost
  // The tiers below the pool: host memory, disk. Cached pages that the pool has no room for are
  // stored there where loading them is cheaper than computing them again; so are the pages of
  // preempted sequences.
  std::vector<TierSpec> tiers;
  // Sequences keep a state of fixed size, each in its slot, and so many states can be saved,
  // without which no prefix is found (kv/state_checkpoints.h). nullopt: the model keeps none. Not
  // with tiers, nor with proposals, whose rejection a state does not undo.
  std::optional<int32_t> state_checkpoints;
  // Under policies that reorder the queue, a sequence that has waited so many steps goes before all
  // others.
  int32_t promote_after_steps = 2000;
  bool higher_priority_first = false;  // priority: vLLM's order is lower first, SGLang's higher
  WaitingRatioOptions waiting;
  OpenPplOptions openppl;
  // static: a row whose answer has ended is computed, and holds its memory, until the whole batch
  // has ended, as in engines whose batches have one shape. Off: it only holds its slot.
  bool static_computes_ended_rows = true;
  // mlfq: the first queue's quantum; each next has twice it. 0: the shortest step, as measured.
  double mlfq_quantum_seconds = 0;
  // fair: prompts of a tenant with more than its share of the last while are cut so that a step
  // takes no longer than this many times what its decodes take. 0: they are not.
  double crowd_step_ratio = 1.25;
  ProposalOptions proposals;  // speculative decoding
  std::vector<SloClass> slo_classes = {
      {"default", 1.0, 0.1}};    // deadline; the first is the default
  const Clock* clock = nullptr;  // of deadlines and of the prefill budget; null: time stands still
};

// Of speculative decoding.
struct ProposalStats {
  uint64_t verifications = 0;           // of a sequence's proposals in a step
  uint64_t proposed = 0, accepted = 0;  // tokens that were verified; of them, those that were right
  // Verifications whose first, second, ... token was right; what comes later is not told apart.
  static constexpr size_t kPositions = 32;
  std::array<uint64_t, kPositions> accepted_at{};
  double draft_seconds = 0;  // that a draft model took of the steps
};

// Checkpoints of states, of models that keep such: how many there are, how often one was saved,
// began a sequence, or was given up for another.
struct StateCounts {
  int32_t checkpoints = 0;
  uint64_t saved = 0, restored = 0, evicted = 0;
};

struct SchedulerStats {
  int32_t running = 0;  // sequences with a slot
  int32_t waiting = 0;  // requests queued, without those in the background
  int32_t background_running = 0, background_waiting = 0;
  int32_t blocks_total = 0, blocks_used = 0;
  uint64_t preemptions = 0;  // for want of pages
  uint64_t yields = 0;       // preemptions by the policy
  uint64_t promotions = 0;   // waited promote_after_steps
  // Seconds that the policy's preemptions may still cost; negative: no sequence is displaced by the
  // policy, or promoted, until so many more are earned. 0 where preemptions have no price.
  double displacement_seconds = 0;
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0, generation_tokens = 0;  // computed (useful) tokens
  // Static batching: steps in which an ended row held its slot, and tokens computed for such rows.
  uint64_t idle_row_steps = 0, ended_row_tokens = 0;
  uint64_t recomputed_tokens = 0;  // computed again after a preemption; not in the two above
  uint64_t dropped_tokens = 0;     // sampled for a sequence that had already ended
  ProposalStats proposals;
  int32_t blocks_cached = 0;          // of those not used: hold a prefix that may be used again
  uint64_t prefix_cache_queries = 0;  // tokens of admitted requests that were looked up
  uint64_t prefix_cache_hits = 0;     // of them, tokens that were found
  uint64_t prefix_cache_evictions = 0;
  PageTimeStats page_times;     // of cached pages, by the clock
  uint64_t resumed_tokens = 0;  // of preempted sequences, found instead of computed again
  TierCounts pages_moved;
  int32_t pages_in_host = 0, pages_on_disk = 0;
  StateCounts states;
  // Of steps with live work while background work waited: what was left under
  // background.step_seconds, and what of it the background took, by the measured cost of steps.
  double background_room_seconds = 0, background_used_seconds = 0;
  // The same in tokens: those that the background computed, and with them the tokens of a prompt
  // that would still have fitted. (Seconds may be left over that no whole token fits into, and
  // those that steps need because they scatter: all but background.over_share of them are to keep
  // the bound.)
  uint64_t background_room_tokens = 0, background_used_tokens = 0;
  uint64_t background_tokens = 0;  // computed for background requests, prompts and answers
  // Steps with background work beside decodes of live requests, and no prompt of theirs: how long
  // they took, and how many of them longer than background.step_seconds.
  uint64_t beside_steps = 0, beside_steps_over = 0;
  double beside_seconds = 0, beside_seconds_max = 0;
  StepCost step_cost;          // as measured with the clock; all 0: nothing is known yet
  double step_cost_error = 0;  // mean relative error of its predictions
};

class Scheduler {
 public:
  static Result<std::unique_ptr<Scheduler>> create(SchedulerOptions options);
  virtual ~Scheduler() = default;

  // Whether the request could ever run: kInvalidArgument naming field and both numbers when its
  // prompt plus max_tokens fits neither max_model_len nor the whole pool, or n exceeds the slots.
  // Reads only constants: any thread.
  virtual Status check(const Request& request) const = 0;

  // Queues a request. Returns check()'s errors, or kExhausted where max_num_seqs +
  // max_queued_requests requests have not ended yet (a server says 429).
  virtual Status add(Request request) = 0;
  // Cancels a request, or one choice of it: nothing is emitted for it any more. False: the request
  // is not known (an ordinary event: it may have just finished).
  virtual bool cancel(RequestId request) = 0;
  virtual bool cancel(RequestId request, int32_t choice) = 0;

  virtual bool has_work() const = 0;  // a sequence waits, runs or retires
  // The next step; empty() where nothing can run now. REQUIRES: fewer than steps_in_flight_max
  // plans are not applied
  virtual StepPlan plan() = 0;
  // What the oldest plan that is not applied brought. Returns what clients are told of it.
  virtual std::vector<Emission> apply(const StepPlan& plan, const StepResult& result) = 0;

  // The cache, for saving and restoring it while nothing runs; null: off.
  virtual PrefixCache* prefix_cache() = 0;

  virtual SchedulerStats stats() const = 0;  // O(1)
  virtual KvWaste kv_waste() const = 0;      // O(running)
  // Checks every invariant of the block pool and the sequence states: kInternal names the first
  // that fails. O(sequences + pages)
  virtual Status check_invariants() const = 0;
};

}  // namespace headrace
