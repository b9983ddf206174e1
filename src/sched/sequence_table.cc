#include "sched/sequence_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {

SequenceTable::SequenceTable(const SchedulerOptions& options, QueuePolicy& policy, BlockPool& pool,
                             PageSupply& supply, AdmissionControl& admission)
    : options_(options),
      policy_(policy),
      pool_(pool),
      supply_(supply),
      admission_(admission),
      line_(sequences_),
      slots_(options.max_num_seqs),
      rows_(policy, pool, slots_) {}

Sequence* SequenceTable::find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

bool SequenceTable::nobody_live() const {
  return line_.live().empty() && (running_.empty() || running_.oldest().rank.background);
}

// --- requests come, choices end

Status SequenceTable::add(Request request, uint64_t step, double now_seconds) {
  const int32_t room = options_.max_num_seqs + options_.max_queued_requests;
  int32_t& outstanding = outstanding_[request.background ? 1 : 0];
  if (outstanding >= room) {
    return exhausted(
        fmt::format("{} requests are running or queued, the most there can be", outstanding));
  }
  ++outstanding;
  const auto shared = std::make_shared<const Request>(std::move(request));
  const auto [entry, fresh] = requests_.try_emplace(shared->id);
  CHECK_MSG(fresh, "a request id is unique for the life of the process");
  entry->second.request = shared;
  entry->second.unfinished = shared->sampling.n;
  const uint64_t arrival = next_arrival_++;
  for (int32_t choice = 0; choice < shared->sampling.n; ++choice) {
    auto sequence =
        std::make_unique<Sequence>(Sequence{.id = SequenceId(next_sequence_++),
                                            .entry = &entry->second,
                                            .request = shared,
                                            .choice = choice,
                                            .rank = {.arrival = arrival, .choice = choice},
                                            .arrival_seconds = now_seconds,
                                            .first_token_seconds = now_seconds,
                                            .output = shared->answered,
                                            .followers = {},
                                            .blocks = SequenceBlocks(options_.groups),
                                            .path = {},
                                            .state = Waiting{}});
    entry->second.choices.push_back(sequence.get());
    sequences_.emplace(sequence->id, std::move(sequence));
  }
  Sequence* leader = entry->second.choices.front();
  leader->followers.assign(entry->second.choices.begin() + 1, entry->second.choices.end());
  for (Sequence* follower : leader->followers) follower->state = Waiting{.leader = leader};
  for (Sequence* choice : entry->second.choices) policy_.note(SequenceEvent::kArrived, *choice);
  enqueue(*leader, step);
  return ok_status();
}

void SequenceTable::end_choice(Sequence& sequence) {
  RequestEntry& entry = *sequence.entry;
  entry.choices[static_cast<size_t>(sequence.choice)] = nullptr;
  --entry.unfinished;
  admission_.sequence_ended();
  if (sequence.followers.empty()) {
    retire(sequence);
  } else if (sequence.is<Prefilling>()) {
    sequence.muted = true;
  } else {
    hand_over(sequence);
    retire(sequence);
  }
  if (entry.unfinished > 0) return;
  --outstanding_[entry.request->background ? 1 : 0];
  requests_.erase(entry.request->id);
}

void SequenceTable::retire(Sequence& sequence) {
  const bool goes_on = rows_.goes_on(sequence);
  if (sequence.running()) {
    leave_batch(sequence, /*ended=*/true);
  } else {
    const auto waiting = std::get<Waiting>(sequence.state);
    supply_.unpin(sequence);
    if (waiting.leader == nullptr) dequeue(sequence);
    if (waiting.slot) slots_.give_back(*waiting.slot);
    if (waiting.leader != nullptr) {
      std::erase(waiting.leader->followers, &sequence);
      if (waiting.leader->muted && waiting.leader->followers.empty()) retire(*waiting.leader);
    }
  }
  policy_.note(SequenceEvent::kEnded, sequence);
  sequence.entry = nullptr;
  sequence.state = Retiring{.in_batch = goes_on};
  retiring_.push_back(&sequence);
}

// Out of what runs: the pages go at once (fenced), the slot when no step in flight refers to it. A
// row that goes on in its batch keeps both.
void SequenceTable::leave_batch(Sequence& sequence, bool ended) {
  // A finished row of the background is held for no batch.
  const bool of_batch = ended && !sequence.rank.background;
  const bool goes_on = ended && rows_.goes_on(sequence);
  slots_.leave({sequence.id, sequence.slot(), sequence.last_step, of_batch,
                sequence.rank.background, goes_on ? &sequence : nullptr});
  sequence.path = {};
  if (!goes_on) {
    sequence.blocks.release_all(pool_, sequence.last_step);
    sequence.prefix_tokens = 0;
    sequence.extent = {};
    sequence.proposals.begun = false;
    sequence.proposals.drafted_to = 0;
  }
  running_.remove(sequence);
}

void SequenceTable::hand_over(Sequence& leader) {
  drop_reserved_slots(leader);
  Sequence* heir = leader.followers.front();
  heir->followers.assign(leader.followers.begin() + 1, leader.followers.end());
  leader.followers.clear();
  for (Sequence* follower : heir->followers) follower->state = Waiting{.leader = heir};
  heir->preemptions = leader.preemptions;
  heir->computed_max = leader.computed_max;
  heir->yields = leader.yields;
  heir->rank.level = leader.rank.level;
  heir->rank.key = leader.rank.key;
  heir->state = Waiting{};
  // It has waited as long as the leader: since its last work.
  if (!leader.is<Waiting>()) return enqueue(*heir, leader.waits_since);
  place_in_queue(*heir);
  heir->waits_since = leader.waits_since;
  line_.hand_wait(leader, *heir);
}

void SequenceTable::drop_reserved_slots(Sequence& leader) {
  for (Sequence* follower : leader.followers) {
    auto& waiting = std::get<Waiting>(follower->state);
    if (waiting.slot) slots_.give_back(*waiting.slot);
    waiting.slot.reset();
  }
}

void SequenceTable::sweep_retired() {
  if (running_.live().empty()) rows_.drop_all();
  const Ticket applied = pool_.applied();
  std::erase_if(retiring_, [&](Sequence* sequence) {
    if (sequence->last_step > applied || std::get<Retiring>(sequence->state).in_batch) return false;
    sequences_.erase(sequence->id);
    return true;
  });
}

// --- in line

void SequenceTable::place_in_queue(Sequence& sequence) {
  sequence.rank = rank_of(sequence);
  sequence.reserved = std::min(policy_.reserved_length(sequence), sequence.length_max());
  reserves_ = reserves_ || sequence.reserved > 0;
  line_.insert(sequence);
  if (!sequence.rank.background) policy_.note(SequenceEvent::kQueued, sequence);
}

// A queued sequence has a place by rank and, where it may starve, one by how long it waits.
void SequenceTable::enqueue(Sequence& sequence, uint64_t waits_since) {
  place_in_queue(sequence);
  sequence.waits_since = waits_since;
  if (policy_.rules().may_starve && !sequence.rank.background) line_.note_wait(sequence);
}

void SequenceTable::dequeue(Sequence& sequence) {
  line_.remove(sequence);
  if (!sequence.rank.background) policy_.note(SequenceEvent::kDequeued, sequence);
}

void SequenceTable::place_again(Sequence& sequence) {
  dequeue(sequence);
  place_in_queue(sequence);
}

// Promotion lasts.
Rank SequenceTable::rank_of(const Sequence& sequence) const {
  if (sequence.rank.level == kPromotedLevel) return sequence.rank;
  const bool background = sequence.request->background;
  Rank rank = background ? Rank{} : policy_.rank(sequence);
  rank.background = background;
  rank.arrival = sequence.rank.arrival;
  rank.choice = sequence.rank.choice;
  return rank;
}

void SequenceTable::promote(Sequence& sequence, uint64_t step) {
  const auto to_front = [&] {  // among the promoted: first come first served
    sequence.rank.level = kPromotedLevel;
    sequence.rank.key = 0;
  };
  if (sequence.running()) {
    running_.remove(sequence);
    to_front();
    sequence.waits_since = step;
    running_.insert(sequence);
    return;
  }
  line_.end_longest_wait();
  dequeue(sequence);
  to_front();
  enqueue(sequence, step);
}

// --- sequences that run

void SequenceTable::start(Sequence& head) {
  dequeue(head);
  head.state = Prefilling{.slot = slots_.take(), .target = head.known_length()};
  for (Sequence* follower : head.followers) {
    std::get<Waiting>(follower->state).slot = slots_.take();
  }
  running_.insert(head);
}

void SequenceTable::start_follower(Sequence& leader, Sequence& follower, uint64_t step) {
  const SlotId slot = std::get<Waiting>(follower.state).slot.value();
  follower.blocks = leader.blocks.fork(pool_, leader.extent.most);
  follower.extent = leader.extent;
  follower.computed_max = leader.extent.most;
  follower.path = leader.path;
  policy_.note(SequenceEvent::kForked, follower);
  follower.reserved = leader.reserved;
  follower.rank = rank_of(follower);
  follower.waits_since = step;
  follower.prefix_tokens = leader.prefix_tokens;
  follower.samples_in_flight = 1;
  follower.last_step = leader.last_step;
  follower.state = Decoding{slot};
  running_.insert(follower);
}

void SequenceTable::rerank(Sequence& sequence) {
  running_.remove(sequence);
  sequence.rank = rank_of(sequence);
  running_.insert(sequence);
}

void SequenceTable::preempt(Sequence& victim) {
  ++preemptions_;
  ++victim.preemptions;
  requeue(victim);
}

void SequenceTable::yield(Sequence& victim) {
  ++yields_;
  ++victim.yields;
  victim.displaced = !victim.rank.background;
  requeue(victim);
}

void SequenceTable::requeue(Sequence& victim) {
  drop_reserved_slots(victim);
  if (victim.muted) {
    hand_over(victim);
    retire(victim);
    return;
  }
  supply_.pin(victim);
  leave_batch(victim, /*ended=*/false);
  victim.state = Waiting{};
  // It has waited since its last work, and not only since it lost its slot: a sequence that joined,
  // had its pages loaded and lost them again got nothing.
  enqueue(victim, victim.waits_since);
}

// --- slots whose sequences have left

void SequenceTable::release_slots() {
  // A batch is done when nothing of it runs; a preempted row joins the next one.
  const bool hold_ended = policy_.rules().holds_finished_rows && !running_.live().empty();
  if (!hold_ended) rows_.drop_all();
  slots_.release(pool_.applied(), hold_ended);
  // The live count only their own.
  live_rows_at_start_ = options_.max_num_seqs - static_cast<int32_t>(slots_.free_count());
  for (const Sequence* each : running_.all().subspan(running_.live().size())) {
    live_rows_at_start_ -= 1 + static_cast<int32_t>(each->followers.size());
  }
  for (const LeavingSlot& leaving : slots_.leaving()) {
    live_rows_at_start_ -= leaving.background ? 1 : 0;
  }
}

}  // namespace headrace
