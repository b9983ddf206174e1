#include "sched/batch_scheduler.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "sched/request_limits.h"

namespace headrace {
namespace {

// Null: off. REQUIRES: the rule of eviction has a row in its table
std::unique_ptr<PrefixCache> create_prefix_cache(const SchedulerOptions& options, BlockPool& pool) {
  if (!options.enable_prefix_caching || options.allocation != KvAllocation::kPaged) return nullptr;
  const EvictionRule rule = find_eviction_rule(options.prefix_cache_eviction).value();
  return std::make_unique<PrefixCache>(pool, options.groups,
                                       PrefixCacheOptions{.rule = rule, .tiers = options.tiers});
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::create(SchedulerOptions options) {
  HR_RETURN_IF_ERROR(check_options(options));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<QueuePolicy> policy, create_queue_policy(options));
  return std::unique_ptr<Scheduler>(
      std::make_unique<BatchScheduler>(std::move(options), std::move(policy)));
}

BatchScheduler::BatchScheduler(SchedulerOptions options, std::unique_ptr<QueuePolicy> policy)
    : options_(std::move(options)),
      policy_(std::move(policy)),
      pool_(options_.block_count),
      cache_(create_prefix_cache(options_, pool_)),
      admission_(options_),
      supply_(options_, pool_, cache_.get(), admission_),
      beside_overrun_(1.1, options_.background_over_share),
      cached_tokens_([this](const Sequence& s) { return cached_tokens(s); }),
      fits_([this](const Sequence& s) { return fits(s); }) {
  for (int32_t slot = options_.max_num_seqs - 1; slot >= 0; --slot) {
    free_slots_.push_back(SlotId(slot));
  }
}

Status BatchScheduler::check(const Request& request) const {
  return check_request(options_, request);
}

Status BatchScheduler::add(Request request) {
  HR_RETURN_IF_ERROR(check(request));
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
                                            .policy = {},
                                            .arrival_seconds = now(),
                                            .output = {},
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
  for (Sequence* choice : entry->second.choices) policy_->arrived(*choice);
  enqueue(*leader, next_step_);
  return ok_status();
}

bool BatchScheduler::cancel(RequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return false;
  const std::vector<Sequence*> choices = found->second.choices;
  for (Sequence* sequence : choices) {
    if (sequence != nullptr) end_choice(*sequence);
  }
  sweep_retiring();
  return true;
}

bool BatchScheduler::cancel(RequestId request, int32_t choice) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return false;
  const std::vector<Sequence*>& choices = found->second.choices;
  if (choice < 0 || static_cast<size_t>(choice) >= choices.size()) return false;
  Sequence* sequence = choices[static_cast<size_t>(choice)];
  if (sequence == nullptr) return false;
  end_choice(*sequence);
  sweep_retiring();
  return true;
}

// The request is done with this choice. A leader goes on without a choice of its own while others
// wait for the prompt that it computes.
void BatchScheduler::end_choice(Sequence& sequence) {
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

void BatchScheduler::retire(Sequence& sequence) {
  const bool goes_on = goes_on_in_batch(sequence);
  if (sequence.running()) {
    leave_batch(sequence, /*ended=*/true);
  } else {
    const auto waiting = std::get<Waiting>(sequence.state);
    supply_.unpin(sequence);
    if (waiting.leader == nullptr) dequeue(sequence);
    if (waiting.slot) free_slots_.push_back(*waiting.slot);
    if (waiting.leader != nullptr) {
      std::erase(waiting.leader->followers, &sequence);
      if (waiting.leader->muted && waiting.leader->followers.empty()) retire(*waiting.leader);
    }
  }
  policy_->ended(sequence);
  sequence.entry = nullptr;
  sequence.state = Retiring{.in_batch = goes_on};
  retiring_.push_back(&sequence);
}

// Out of running_: the pages go at once (fenced), the slot when no step in flight refers to it. A
// row that goes on in its batch keeps both.
void BatchScheduler::leave_batch(Sequence& sequence, bool ended) {
  // A finished row of the background is held for no batch.
  const bool of_batch = ended && !sequence.rank.background;
  const bool goes_on = ended && goes_on_in_batch(sequence);
  leaving_.push_back({sequence.id, sequence.slot(), sequence.last_step, of_batch,
                      sequence.rank.background, goes_on ? &sequence : nullptr});
  sequence.path = {};
  if (!goes_on) {
    sequence.blocks.release_all(pool_, sequence.last_step);
    sequence.prefix_tokens = 0;
    sequence.planned = 0;
  }
  const auto at = std::lower_bound(running_.begin(), running_.end(), &sequence, ByRank());
  CHECK(at != running_.end() && *at == &sequence);
  running_.erase(at);
}

void BatchScheduler::hand_over(Sequence& leader) {
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
  if (leader.rank.level == kPromotedLevel) policy_->promote(*heir);
  heir->state = Waiting{};
  // It has waited as long as the leader: since its last work.
  if (!leader.is<Waiting>()) return enqueue(*heir, leader.waits_since);
  place_in_queue(*heir);
  heir->waits_since = leader.waits_since;
  for (Wait& wait : waits_) {
    if (wait.sequence == leader.id) wait.sequence = heir->id;
  }
}

void BatchScheduler::drop_reserved_slots(Sequence& leader) {
  for (Sequence* follower : leader.followers) {
    auto& waiting = std::get<Waiting>(follower->state);
    if (waiting.slot) free_slots_.push_back(*waiting.slot);
    waiting.slot.reset();
  }
}

void BatchScheduler::run(Sequence& sequence) {
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, ByRank()),
                  &sequence);
}

void BatchScheduler::place_in_queue(Sequence& sequence) {
  sequence.rank = rank_of(sequence);
  sequence.reserved = std::min(policy_->reserved_length(sequence), sequence.length_max());
  reserves_ = reserves_ || sequence.reserved > 0;
  if (sequence.rank.background) {
    background_queue_.insert(&sequence);
    return;
  }
  queue_.insert(&sequence);
  policy_->queued(sequence);
}

// In the queue it has a place by rank, and, where it may starve, one in the line of those who wait.
void BatchScheduler::enqueue(Sequence& sequence, uint64_t waits_since) {
  place_in_queue(sequence);
  sequence.waits_since = waits_since;
  if (!policy_->may_starve() || sequence.rank.background) return;
  const Wait wait{sequence.id, sequence.waits_since};
  waits_.insert(std::upper_bound(waits_.begin(), waits_.end(), wait,
                                 [](const Wait& a, const Wait& b) { return a.since < b.since; }),
                wait);
  if (waits_.size() <= 2 * queue_.size() + 64) return;
  std::erase_if(waits_, [&](const Wait& wait) {
    const Sequence* waiting = find(wait.sequence);
    return waiting == nullptr || !waiting->is<Waiting>() || waiting->waits_since != wait.since;
  });
}

void BatchScheduler::dequeue(Sequence& sequence) {
  if (sequence.rank.background) {
    background_queue_.erase(&sequence);
    return;
  }
  queue_.erase(&sequence);
  policy_->dequeued(sequence);
}

// Promotion lasts.
Rank BatchScheduler::rank_of(const Sequence& sequence) const {
  if (sequence.rank.level == kPromotedLevel) return sequence.rank;
  const bool background = sequence.request->background;
  Rank rank = background ? Rank{} : policy_->rank(sequence);
  rank.background = background;
  rank.arrival = sequence.rank.arrival;
  rank.choice = sequence.rank.choice;
  return rank;
}

// Its rank may have changed: moves it to its place. REQUIRES: running
void BatchScheduler::rerank(Sequence& sequence) {
  const auto at = std::lower_bound(running_.begin(), running_.end(), &sequence, ByRank());
  CHECK(at != running_.end() && *at == &sequence);
  running_.erase(at);
  sequence.rank = rank_of(sequence);
  run(sequence);
}

Sequence* BatchScheduler::find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

SlotId BatchScheduler::take_slot() {
  CHECK(!free_slots_.empty());
  const SlotId slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

SchedulerStats BatchScheduler::stats() const {
  SchedulerStats stats = totals_;
  stats.running = static_cast<int32_t>(running_.size());
  stats.waiting = static_cast<int32_t>(queue_.size());
  stats.background_waiting = static_cast<int32_t>(background_queue_.size());
  stats.background_running = static_cast<int32_t>(running_.size() - live_running().size());
  stats.displacement_seconds = displacement_seconds_;
  stats.step_cost = cost_.cost();
  stats.step_cost_error = cost_.error();
  stats.blocks_total = pool_.total();
  stats.blocks_used = pool_.total() - pool_.free_count();
  stats.blocks_cached = pool_.idle_count();
  if (cache_ == nullptr) return stats;
  stats.prefix_cache_evictions = cache_->evictions();
  const TierCounts& moved = cache_->tier_counts();
  stats.pages_stored = moved.stored;
  stats.pages_loaded = moved.loaded;
  stats.pages_dropped = moved.dropped;
  stats.pages_in_host = cache_->pages_in_tier(kHostTier);
  stats.pages_on_disk = cache_->pages_in_tier(kDiskTier);
  return stats;
}

}  // namespace headrace
