// The scheduler behind scheduler.h: continuous batching with chunked prefill. A plan is made in
// named phases (batch_scheduler_plan.cc; who gives way to whom in it: batch_scheduler_victims.cc):
//
//   release   slots whose last step was applied are free again
//   promote   who has waited too long; look after reservations that were outgrown
//   make room who gives way to the next in line does so before tokens are chosen
//   choose    one token for each decoding sequence, then prompt chunks, under the token budget
//   secure    pages, oldest first; out of pages preempts the youngest, never the oldest
//   emit      the Work items, decodes first; a prompt's last chunk starts the other choices
//   admit     whom the policy names, while slots, pages and budget last; what the prefix cache
//             holds of a prompt is not computed
//
// Why it always goes on: the first running sequence by rank is never a victim of another that runs
// and may take the pages of all others, and check_request() let in only what fits the pool alone;
// while it waits for pages of steps in flight nobody behind it takes one, so it has them when those
// steps were applied; whom the policy names joins before anybody else does, and where that may
// starve somebody, he is promoted to the front.
//
// Background requests fill what all others leave idle: they have a line of their own, join only
// when nobody live waits, rank behind all, and give slots and pages to any live request. While
// there is one, they get only as much of a step as keeps it short. They may starve.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "sched/admission.h"
#include "sched/page_supply.h"
#include "sched/queue_policy.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace headrace {

class BatchScheduler final : public Scheduler {
 public:
  // REQUIRES: check_options(options).ok()
  BatchScheduler(SchedulerOptions options, std::unique_ptr<QueuePolicy> policy);

  Status check(const Request& request) const override;
  Status add(Request request) override;
  bool cancel(RequestId request) override;
  bool cancel(RequestId request, int32_t choice) override;
  bool has_work() const override { return !sequences_.empty(); }
  StepPlan plan() override;
  std::vector<Emission> apply(const StepPlan& plan, const StepResult& result) override;
  PrefixCache* prefix_cache() override { return cache_.get(); }
  SchedulerStats stats() const override;
  KvWaste kv_waste() const override;
  Status check_invariants() const override;

 private:
  // Prompts go on whatever decodes are promised: a step has room for so many tokens of them.
  static constexpr int32_t kPromptTokensMin = 16;
  static constexpr double kLongStepsMax = 8;  // that can be saved up
  static constexpr double kLiveLatelySeconds = 5;

  // A slot whose sequence has left it. It is free again when no step in flight refers to it.
  struct LeavingSlot {
    SequenceId sequence;
    SlotId slot;
    Ticket last_step;
    bool ended = false;  // not just preempted
    bool background = false;
    Sequence* row = nullptr;  // of a static batch: is computed until the batch has ended
  };
  // A running sequence and what the plan under construction gives it.
  struct Candidate {
    Sequence* sequence = nullptr;
    int32_t count = 0;  // tokens
    std::vector<GroupBlocks> new_blocks;
  };
  // Free pages that those behind `rank` may not take in this plan: who has it is the first that
  // goes on, or that joins in their place, and lacks them.
  struct KeptPages {
    Rank rank;
    int64_t pages = 0;
  };
  // A place in the line of those who wait, for promotion.
  struct Wait {
    SequenceId sequence;
    uint64_t since = 0;
  };

  // plan(), in order.
  void release_slots();
  void promote_starving();
  Sequence* longest_without_work();
  void check_reservations();
  void build(StepPlan& plan, StepShape shape);
  void make_room();
  void choose_tokens(StepShape shape);
  void choose_background(StepShape shape);
  bool live_one_joins(StepShape shape);
  int32_t budget_for_oldest(StepShape shape) const;
  double background_seconds() const;
  double gap_seconds() const;
  bool nobody_live() const;
  void note_background_room(const StepPlan& plan);
  int32_t background_prompt_tokens(const Sequence& sequence) const;
  void keep_pages_for_first();
  bool stands_behind_kept(const Sequence& sequence) const;
  int64_t free_pages_for(const Sequence& sequence) const;
  int32_t tokens_to_go_on(const Sequence& sequence) const;
  void secure_pages(StepPlan& plan);
  void emit_work(StepPlan& plan);
  void compute_ended_rows(StepPlan& plan);
  void admit_waiting(StepPlan& plan);

  bool can_decode(const Sequence& sequence) const;
  void begin_budget();
  int32_t chunk_of(int32_t first, int32_t remaining) const;
  int32_t prompt_tokens_within(double seconds, int32_t first, int32_t most) const {
    return prompt_tokens_beside(load_, seconds, first, most);
  }
  int32_t prompt_tokens_beside(const StepLoad& load, double seconds, int32_t first,
                               int32_t most) const;
  void take_budget(const Sequence& sequence, int32_t first, int32_t count);
  double seconds_beside_decodes();
  bool spend_long_step();
  void share_prompt_budget();
  bool gives_way_to_prompt();
  int32_t crowd_budget();
  int32_t chunk_for(const Sequence& sequence, int32_t first, int32_t remaining) const;
  int32_t budget_for_waiting(int32_t budget);
  void note_cost(const StepPlan& plan);
  void note_beside(const StepPlan& plan, double seconds, double predicted);
  double tpot_seconds() const { return options_.tpot_target_seconds / chunk_overrun_.ratio(); }
  double now() const { return options_.clock == nullptr ? 0 : options_.clock->now_seconds(); }
  int32_t secure(Sequence& sequence, int32_t count);
  bool goes_on_in_batch(const Sequence& sequence) const;
  void drop_row(LeavingSlot& leaving);
  bool drop_an_ended_row();
  void drop_ended_rows();
  void grow(Candidate& candidate, StepPlan& plan);
  void add_work(Candidate& candidate, StepPlan& plan);
  void start_followers(Sequence& leader, Work& work, StepPlan& plan);
  StepView view() const;
  std::span<Sequence* const> live_running() const;
  Sequence* next_to_join();
  bool may_join(const Sequence& head, const PrefixMatch& hit) const;
  bool leaves_headroom(const Sequence& head, const PrefixMatch& hit);
  bool has_room(const Sequence& head);
  bool may_displace() const;
  bool may_promote() const;
  bool displaces(const Sequence& head, const Sequence& running) const;
  bool held_back(const Sequence& head) const;
  Sequence* victim_for(const Sequence& head) const;
  bool make_slots(const Sequence& head);
  bool make_pages(Sequence& head, const PrefixMatch& hit);
  int32_t cached_tokens(const Sequence& waiting) const;
  bool fits(const Sequence& waiting) const;
  void admit(Sequence& head, const PrefixMatch& hit, StepPlan& plan);
  void note_prefix(const Sequence& head, int32_t found_tokens);
  void collect_moves(StepPlan& plan);
  bool wants_prompt_logprobs(const Sequence& sequence, int32_t first, int32_t count) const;
  void preempt(Sequence& victim);
  void yield(Sequence& victim);
  void requeue(Sequence& victim);
  void note_displacement_budget(double step_seconds);
  void charge_displacement(Sequence& head, int32_t found_tokens);

  // apply()
  void note_computed(const Work& work, Sequence& sequence);
  void take_row(Sequence& sequence, const Work& work, const StepResult::Row* row,
                std::vector<Emission>& out);
  void charge(Sequence& sequence, int32_t prompt_tokens, int32_t output_tokens);
  void take_sampled_row(Sequence& sequence, const StepResult::Row& row, Emission& emission);
  void take_prompt_logprobs(Sequence& sequence, const Work& work, const StepResult::Row& row,
                            Emission& emission);
  void end_prompt_only(const Work& work, const Sequence& leader, std::vector<Emission>& out);
  void fault(Sequence& sequence, std::vector<Emission>& out);
  FinishReason finish_after(const Sequence& sequence, TokenId token,
                            std::optional<TokenId>& stop_token) const;
  void sweep_retiring();

  // Changes of state.
  void end_choice(Sequence& sequence);  // its request is done with it
  void retire(Sequence& sequence);      // gives up pages and slot
  void leave_batch(Sequence& sequence, bool ended);
  void hand_over(Sequence& leader);  // its followers go on behind the first of them
  void drop_reserved_slots(Sequence& leader);
  void run(Sequence& sequence);  // into running_, by rank
  void enqueue(Sequence& sequence, uint64_t waits_since);
  void place_in_queue(Sequence& sequence);
  void dequeue(Sequence& sequence);
  void rerank(Sequence& sequence);
  Rank rank_of(const Sequence& sequence) const;
  Sequence* find(SequenceId id) const;
  SlotId take_slot();

  // check_invariants(), by subject.
  Status check_lists() const;
  Status check_requests() const;
  Status check_slots() const;
  Status check_pages() const;
  Status check_cache() const;

  const SchedulerOptions options_;
  const std::unique_ptr<QueuePolicy> policy_;
  BlockPool pool_;
  std::unique_ptr<PrefixCache> cache_;  // null: off
  AdmissionControl admission_;
  PageSupply supply_;
  StepCostFit cost_;

  std::unordered_map<RequestId, RequestEntry> requests_;
  std::array<int32_t, 2> outstanding_{};  // of them: live, background
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  WaitingQueue queue_;              // Waiting and not a follower; of those with live requests
  WaitingQueue background_queue_;   // the same of the others: no policy sees it
  std::deque<Wait> waits_;          // by `since`; those who no longer wait are skipped
  std::vector<Sequence*> running_;  // Prefilling or Decoding, by rank
  std::vector<Sequence*> retiring_;
  std::vector<SlotId> free_slots_;
  std::vector<LeavingSlot> leaving_;
  std::vector<ReleasedSlot> released_;  // free, but no plan has told the device yet

  // A submitted step, and what the clock said.
  struct InFlight {
    uint64_t step = 0;
    double planned_seconds = 0;
    std::vector<Sequence*> sequences;  // of its works, in their order; it keeps them alive
  };
  std::deque<InFlight> in_flight_;
  double applied_seconds_ = 0;                                      // of the last step
  double live_seconds_ = -std::numeric_limits<double>::infinity();  // a live request had work
  // Of steps with background work beside live ones, and of steps whose prompts are cut to keep to
  // tpot_target_seconds.
  StepOverrun beside_overrun_, chunk_overrun_{1.0, 0.1};
  bool work_left_ = false;  // after it
  bool reserves_ = false;   // its policy has reserved pages for somebody
  // Seconds of computing again that the policy's preemptions may still cost.
  double displacement_seconds_ = 0;
  uint64_t next_step_ = 1;
  uint64_t next_sequence_ = 1;
  uint64_t next_arrival_ = 1;
  SchedulerStats totals_;

  // The plan under construction.
  std::vector<Candidate> candidates_;  // running_ at its start
  std::vector<Sequence*> planned_;     // of its works, in their order
  std::optional<KeptPages> kept_;
  bool keeps_pages_ = true;                                      // for one that joins
  const std::function<int32_t(const Sequence&)> cached_tokens_;  // for views
  const std::function<bool(const Sequence&)> fits_;
  // Its budget: work so far, tokens left, seconds that it may take (with decodes in it).
  StepLoad load_;
  int32_t budget_left_ = 0;
  double seconds_max_ = 0;
  double long_steps_ = 0;   // that may be taken by tpot_over_share
  int32_t crowd_left_ = 0;  // of it, for prompts of tenants that crowd
  int32_t rows_at_start_ = 0;
  bool may_pause_ = true, background_paused_ = false;  // for a live request that joins
};

}  // namespace headrace
