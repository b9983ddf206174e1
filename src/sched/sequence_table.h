// Every sequence that has not ended, in the list of its state (sequence.h), with what it holds
// there: a place in the queue or among the running sequences, a slot, pages. Each change of state
// is one command; whether it should happen is decided elsewhere. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kv/block_pool.h"
#include "sched/admission.h"
#include "sched/ended_rows.h"
#include "sched/page_supply.h"
#include "sched/queue_policy.h"
#include "sched/running_set.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"
#include "sched/slot_pool.h"
#include "sched/waiting_line.h"

namespace headrace {

class SequenceTable {
 public:
  // All outlive this object.
  SequenceTable(const SchedulerOptions& options, QueuePolicy& policy, BlockPool& pool,
                PageSupply& supply, AdmissionControl& admission);

  bool empty() const { return sequences_.empty(); }
  const RunningSet& running() const { return running_; }
  const WaitingLine& line() const { return line_; }
  const SlotPool& slots() const { return slots_; }
  const SequenceMap& sequences() const { return sequences_; }
  const std::unordered_map<RequestId, RequestEntry>& requests() const { return requests_; }
  const std::vector<Sequence*>& retiring() const { return retiring_; }
  Sequence* find(SequenceId id) const;  // null: it has ended
  bool nobody_live() const;             // no live sequence waits or runs
  // Slots that live sequences had taken, or had left and not freed, when slots were released last.
  int32_t live_rows_at_start() const { return live_rows_at_start_; }
  bool has_reservations() const { return reserves_; }  // the policy has reserved pages
  uint64_t preemptions() const { return preemptions_; }
  uint64_t yields() const { return yields_; }

  // --- requests come, choices end
  // kExhausted when there are as many requests as there may be.
  Status add(Request request, uint64_t step, double now_seconds);
  // The request is done with this choice. A leader goes on without a choice of its own (muted)
  // while its followers wait for the prompt that it computes.
  void end_choice(Sequence& sequence);
  // The sequence gives up its pages at once, its slot when no step in flight refers to it.
  void retire(Sequence& sequence);
  // Deletes retired sequences that no step in flight refers to.
  void sweep_retired();

  // --- in line
  // The sequence, waiting or running, goes before all that are not promoted from plan `step` on.
  // REQUIRES: it is WaitingLine::longest_waiting(), or runs
  void promote(Sequence& sequence, uint64_t step);
  // The rank of a waiting sequence may have changed. REQUIRES: it follows no leader
  void place_again(Sequence& sequence);
  void drop_ended_waits() { line_.drop_ended_waits(); }

  // --- sequences that run
  // The sequence gets a slot, and slots are reserved for its followers. REQUIRES: they are free
  void start(Sequence& head);
  // The leader's prompt is planned to its end: the follower shares its pages and decodes from
  // there.
  void start_follower(Sequence& leader, Sequence& follower, uint64_t step);
  // The beam goes on from another's tokens, on its pages. REQUIRES: `parent` decodes and has no
  // step in flight; `beam` follows it, or decodes too
  void move_beam(Sequence& parent, Sequence& beam);
  // The search has joined again with its first sequence: another of its beams computes its tokens
  // behind `hit`. Returns the step after which those pages are there.
  Ticket resume_beam(Sequence& first, Sequence& beam, const PrefixMatch& hit, uint64_t step);
  // The rank of a running sequence may have changed.
  void rerank(Sequence& sequence);
  // The victim waits again: preempt() because an older sequence needs its pages, yield() because
  // the policy prefers another. What it has generated is kept and computed again later. With a beam
  // its whole search waits.
  void preempt(Sequence& victim);
  void yield(Sequence& victim);

  // --- slots whose sequences have left
  void release_slots();
  // Released slots that no plan has told the device of yet.
  std::vector<ReleasedSlot> take_released_slots() { return slots_.take_released(); }
  EndedRows& ended_rows() { return rows_; }

 private:
  void place_in_queue(Sequence& sequence);
  void enqueue(Sequence& sequence, uint64_t waits_since);
  void dequeue(Sequence& sequence);
  Rank rank_of(const Sequence& sequence) const;
  void requeue(Sequence& victim);
  void requeue_search(Sequence& victim);
  void hand_over(Sequence& leader);  // its first follower leads the others
  void drop_reserved_slots(Sequence& leader);
  void leave_batch(Sequence& sequence, bool ended);

  const SchedulerOptions& options_;
  QueuePolicy& policy_;
  BlockPool& pool_;
  PageSupply& supply_;
  AdmissionControl& admission_;

  std::unordered_map<RequestId, RequestEntry> requests_;
  std::array<int32_t, 2> outstanding_{};  // of them: live, background
  SequenceMap sequences_;
  WaitingLine line_;                 // Waiting and not a follower
  RunningSet running_;               // Prefilling or Decoding
  std::vector<Sequence*> retiring_;  // Retiring
  SlotPool slots_;
  EndedRows rows_;
  int32_t live_rows_at_start_ = 0;
  bool reserves_ = false;
  uint64_t next_sequence_ = 1;
  uint64_t next_arrival_ = 1;
  uint64_t preemptions_ = 0, yields_ = 0;
};

}  // namespace headrace
