// The sequences that wait for a slot, by rank: the live ones, which the policy sees, and apart from
// them those of background requests. Under policies that may starve a sequence, the line also knows
// which live one has waited longest.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>

#include "sched/sequence.h"

namespace headrace {

// Every sequence there is, by id.
using SequenceMap = std::unordered_map<SequenceId, std::unique_ptr<Sequence>>;

class WaitingLine {
 public:
  // `sequences` outlives this object.
  explicit WaitingLine(const SequenceMap& sequences) : sequences_(sequences) {}

  const WaitingQueue& live() const { return live_; }
  const WaitingQueue& background() const { return background_; }

  void insert(Sequence& sequence);
  void remove(Sequence& sequence);

  // The sequence waits since Sequence::waits_since, as far as promotion is concerned.
  void note_wait(const Sequence& sequence);
  // `heir` takes over the wait of `leader`.
  void hand_wait(const Sequence& leader, const Sequence& heir);
  // Forgets the longest waits that have ended, because the sequence runs or was promoted.
  void drop_ended_waits();
  // Of the sequences that are not promoted; null: none waits. REQUIRES: drop_ended_waits()
  Sequence* longest_waiting() const;
  // Forgets the longest wait. REQUIRES: there is one
  void end_longest_wait() { waits_.pop_front(); }

 private:
  struct Wait {
    SequenceId sequence;
    uint64_t since = 0;
  };
  Sequence* waiting_by(const Wait& wait) const;  // null: it has ended

  const SequenceMap& sequences_;
  WaitingQueue live_, background_;
  std::deque<Wait> waits_;  // by `since`; waits that have ended are skipped
};

}  // namespace headrace
