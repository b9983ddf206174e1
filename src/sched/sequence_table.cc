#include "sched/sequence_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {
namespace {

// What `from` has computed, `to` has too.
void share_pages(BlockPool& pool, Sequence& from, Sequence& to) {
  to.blocks = from.blocks.fork(pool, from.extent.most);
  to.extent = from.extent;
  to.computed_max = from.extent.most;
  to.path = from.path;
  to.prefix_tokens = from.prefix_tokens;
  to.last_step = std::max(to.last_step, from.last_step);
}

// Beams stand in line one behind the other, with the rank of the first.
void place_behind(const Sequence& first, Sequence& beam) {
  beam.reserved = first.reserved;
  beam.rank = first.rank;
  beam.rank.choice = beam.choice;
}

}  // namespace

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
  const int32_t outstanding_max = options_.max_num_seqs + options_.max_queued_requests;
  int32_t& outstanding = outstanding_[request.background ? 1 : 0];
  if (outstanding >= outstanding_max) {
    return exhausted(
        fmt::format("{} requests are running or queued, the most there can be", outstanding));
  }
  ++outstanding;
  const auto shared = std::make_shared<const Request>(std::move(request));
  const auto [entry, fresh] = requests_.try_emplace(shared->id);
  CHECK_MSG(fresh, "a request id is unique for the life of the process");
  entry->second.request = shared;
  entry->second.unfinished = shared->sequences();
  const uint64_t arrival = next_arrival_++;
  for (int32_t choice = 0; choice < shared->sequences(); ++choice) {
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
  if (shared->beams) {
    const int32_t room = options_.max_model_len - leader->prompt_length();
    entry->second.search = std::make_unique<RunningSearch>(RunningSearch{
        .search = BeamSearch(shared, options_.end_ids, std::min(shared->sampling.max_tokens, room)),
        .beams = {leader}});
  }
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
  const auto* decoding = std::get_if<Decoding>(&sequence.state);
  if (decoding != nullptr && decoding->untold) {
    slots_.give_back(decoding->slot);  // a beam that took another's place in the last result
  } else {
    slots_.leave({sequence.id, sequence.slot(), sequence.last_step, of_batch,
                  sequence.rank.background, goes_on ? &sequence : nullptr});
  }
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
  const auto to_front = [](Sequence& each) {  // among the promoted: first come first served
    each.rank.level = kPromotedLevel;
    each.rank.key = 0;
  };
  if (sequence.running()) {
    for (Sequence* each : running_with(sequence)) {
      running_.remove(*each);
      to_front(*each);
      each->waits_since = step;
      running_.insert(*each);
    }
    return;
  }
  line_.end_longest_wait();
  dequeue(sequence);
  to_front(sequence);
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
  share_pages(pool_, leader, follower);
  policy_.note(SequenceEvent::kForked, follower);
  follower.reserved = leader.reserved;
  follower.rank = rank_of(follower);
  follower.waits_since = step;
  follower.samples_in_flight = 1;
  follower.state = Decoding{slot};
  running_.insert(follower);
}

// --- beams

void SequenceTable::move_beam(Sequence& parent, Sequence& beam) {
  CHECK(parent.is<Decoding>() && parent.samples_in_flight == 0 && beam.samples_in_flight == 0);
  if (const auto* waiting = std::get_if<Waiting>(&beam.state)) {
    const SlotId slot = waiting->slot.value();
    policy_.note(SequenceEvent::kForked, beam);
    std::erase(parent.followers, &beam);
    beam.state = Decoding{.slot = slot, .untold = true};
    beam.waits_since = parent.waits_since;
    place_behind(parent, beam);
    running_.insert(beam);
  } else {
    beam.blocks.release_all(pool_, beam.last_step);
  }
  share_pages(pool_, parent, beam);
  beam.output = parent.output;
  beam.decoding().moved_to = beam.blocks.table();
}

Ticket SequenceTable::resume_beam(Sequence& first, Sequence& beam, const PrefixMatch& hit,
                                  uint64_t step) {
  const SlotId slot = std::get<Waiting>(beam.state).slot.value();
  std::erase(first.followers, &beam);
  beam.state = Prefilling{.slot = slot, .target = beam.known_length()};
  beam.waits_since = step;
  place_behind(first, beam);
  running_.insert(beam);
  return supply_.adopt(beam, hit);
}

// All of the search follow its first from now on, with what they have generated.
void SequenceTable::requeue_search(Sequence& victim) {
  const std::vector<Sequence*> beams = running_with(victim);
  Sequence& first = *beams.front();
  supply_.pin(first);
  for (Sequence* beam : beams) {
    beam->preemptions = victim.preemptions;
    beam->yields = victim.yields;
    leave_batch(*beam, /*ended=*/false);
    if (beam == &first) continue;
    beam->state = Waiting{.leader = &first};
    first.followers.push_back(beam);
    first.last_step = std::max(first.last_step, beam->last_step);  // it joins behind all of theirs
  }
  first.displaced = std::exchange(victim.displaced, false);
  first.state = Waiting{};
  enqueue(first, victim.waits_since);
}

void SequenceTable::rerank(Sequence& sequence) {
  const std::vector<Sequence*> together = running_with(sequence);
  for (Sequence* each : together) running_.remove(*each);
  const Rank rank = rank_of(*together.front());
  for (Sequence* each : together) {
    each->rank = rank;
    each->rank.choice = each->choice;
    running_.insert(*each);
  }
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
  if (victim.request->beams) return requeue_search(victim);
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
