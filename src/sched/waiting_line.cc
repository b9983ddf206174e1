#include "sched/waiting_line.h"

#include <algorithm>

namespace headrace {

void WaitingLine::insert(Sequence& sequence) {
  (sequence.rank.background ? background_ : live_).insert(&sequence);
}

void WaitingLine::remove(Sequence& sequence) {
  (sequence.rank.background ? background_ : live_).erase(&sequence);
}

Sequence* WaitingLine::waiting_by(const Wait& wait) const {
  const auto found = sequences_.find(wait.sequence);
  if (found == sequences_.end()) return nullptr;
  Sequence* sequence = found->second.get();
  const auto* waiting = std::get_if<Waiting>(&sequence->state);
  const bool waits =
      waiting != nullptr && waiting->leader == nullptr && sequence->waits_since == wait.since;
  return waits ? sequence : nullptr;
}

void WaitingLine::note_wait(const Sequence& sequence) {
  const Wait wait{sequence.id, sequence.waits_since};
  waits_.insert(std::upper_bound(waits_.begin(), waits_.end(), wait,
                                 [](const Wait& a, const Wait& b) { return a.since < b.since; }),
                wait);
  if (waits_.size() <= 2 * live_.size() + 64) return;
  std::erase_if(waits_, [&](const Wait& each) { return waiting_by(each) == nullptr; });
}

void WaitingLine::hand_wait(const Sequence& leader, const Sequence& heir) {
  for (Wait& wait : waits_) {
    if (wait.sequence == leader.id) wait.sequence = heir.id;
  }
}

void WaitingLine::drop_ended_waits() {
  while (!waits_.empty()) {
    const Sequence* first = waiting_by(waits_.front());
    if (first != nullptr && first->rank.level != kPromotedLevel) return;
    waits_.pop_front();
  }
}

Sequence* WaitingLine::longest_waiting() const {
  return waits_.empty() ? nullptr : waiting_by(waits_.front());
}

}  // namespace headrace
