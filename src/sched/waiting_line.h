// The sequences that wait for a slot, by rank: the live ones, which the policy sees, and apart from
// them those in the background. Where somebody may starve the line also knows who of the live has
// waited longest.
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
  // `heir` waits in the place of `leader`.
  void hand_wait(const Sequence& leader, const Sequence& heir);
  // Forgets those at the front who wait no more, or are promoted.
  void drop_ended_waits();
  // Who has waited longest; null: nobody. REQUIRES: drop_ended_waits()
  Sequence* longest_waiting() const;
  // The longest wait has ended. REQUIRES: there is one
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
