#include "sched/page_supply.h"

#include <algorithm>
#include <utility>

namespace headrace {

PrefixKey PageSupply::key_of(const Request& request) {
  return {.salt = request.cache_salt, .adapter = request.adapter, .arithmetic = request.arithmetic};
}

PrefixMatch PageSupply::find_prefix(const Sequence& head,
                                    std::span<Sequence* const> running) const {
  if (cache_ == nullptr || head.request->sampling.prompt_logprobs >= 0) return {};
  PrefixMatch hit = longest_prefix(head, head.known_length() - 1);
  // The copy of a page used in part may be one page too many.
  if (cache_->copies(hit) > 0 && pages_to_join(head, hit, running) > pool_.free_count()) {
    const int32_t unit = cache_->unit_tokens();
    return longest_prefix(head, hit.tokens / unit * unit);
  }
  return hit;
}

PrefixMatch PageSupply::longest_prefix(const Sequence& sequence, int32_t tokens_max) const {
  const PrefixKey key = key_of(*sequence.request);
  if (sequence.output.empty()) return cache_->match(key, sequence.request->prompt, tokens_max);
  return cache_->match(key, sequence.known_tokens(), tokens_max);
}

int64_t PageSupply::pages_to_join(const Sequence& head, const PrefixMatch& hit,
                                  std::span<Sequence* const> running) const {
  const int64_t pages = admission_.pages_required(head, running);
  if (hit.tokens == 0) return pages;
  return pages - cache_->pages_in_use(hit) + cache_->copies(hit);
}

int64_t PageSupply::pages_to_adopt(const PrefixMatch& hit) const {
  if (hit.tokens == 0) return 0;
  int64_t pages = 0;
  for (const KvGroupSpec& group : options_.groups)
    pages += pages_for(hit.tokens, group.block_tokens);
  return pages - cache_->pages_in_use(hit);
}

Ticket PageSupply::adopt(Sequence& head, const PrefixMatch& hit) {
  note_prefix(head, hit.tokens);
  head.checkpoint.reset();
  head.answer_checkpoint.reset();
  head.branch_tokens = hit.kv_tokens;
  if (hit.tokens == 0) return Ticket();
  PrefixHold hold = cache_->acquire(hit);
  head.blocks.adopt(std::move(hold.pages), hit.tokens);
  head.path = hold.path;
  head.prefix_tokens = hit.tokens;
  head.extent.begin(hit.tokens);
  if (options_.state_checkpoints) {
    CHECK_MSG(hold.checkpoint.has_value(), "a hit ends where no state is saved");
    head.checkpoint = hold.checkpoint;
    ++states_restored_;
  }
  return hold.usable_after;
}

void PageSupply::note_prefix(const Sequence& head, int32_t found_tokens) {
  if (cache_ == nullptr) return;
  if (head.preemptions + head.yields > 0) {
    resumed_tokens_ += static_cast<uint64_t>(found_tokens);
    return;
  }
  prefix_queries_ += static_cast<uint64_t>(head.known_length());
  prefix_hits_ += static_cast<uint64_t>(found_tokens);
  head.entry->cached_tokens = std::min(found_tokens, head.prompt_length());
}

void PageSupply::count(SchedulerStats& stats) const {
  if (cache_ == nullptr) return;
  stats.prefix_cache_queries = prefix_queries_;
  stats.prefix_cache_hits = prefix_hits_;
  stats.resumed_tokens = resumed_tokens_;
  stats.prefix_cache_evictions = cache_->evictions();
  stats.page_times = cache_->page_times();
  stats.pages_moved = cache_->tier_counts();
  stats.pages_moved.loaded_ahead = loaded_ahead_;
  stats.pages_in_host = cache_->pages_in_tier(kHostTier);
  stats.pages_on_disk = cache_->pages_in_tier(kDiskTier);
  stats.states.checkpoints = cache_->checkpoints().count();
  stats.states.saved = states_saved_;
  stats.states.restored = states_restored_;
  stats.states.evicted = cache_->checkpoints().evictions();
}

int32_t PageSupply::pages_needed(const Sequence& sequence, int32_t count) const {
  return sequence.blocks.pages_needed(pool_, sequence.extent.most, count, reserve_tokens());
}

int32_t PageSupply::longest_fit(const Sequence& sequence, int32_t count, int64_t free_pages) const {
  const auto fits = [&](int32_t tokens) { return pages_needed(sequence, tokens) <= free_pages; };
  if (fits(count)) return count;
  if (!options_.chunked_prefill) return 0;
  int32_t low = 0, high = count;  // fits(low), not fits(high)
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void PageSupply::grow(Sequence& sequence, int32_t count, Ticket step,
                      std::vector<GroupBlocks>& new_blocks, std::vector<BlockCopy>& copies) {
  sequence.blocks.grow(pool_, sequence.extent.most, count, reserve_tokens(), step, new_blocks,
                       copies);
}

void PageSupply::cache_prefix(Sequence& sequence, int32_t length, TokenSpan beyond) {
  if (cache_ == nullptr || sequence.path.lost) return;
  const int32_t unit = cache_->unit_tokens();
  const int32_t first = sequence.path.units * unit, end = length / unit * unit;
  if (end <= first) return;
  const PrefixKey key = key_of(*sequence.request);
  const std::vector<TokenId>& prompt = sequence.request->prompt;
  if (end <= sequence.prompt_length()) {
    const TokenSpan units =
        TokenSpan(prompt).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
    return cache_->extend(key, sequence.path, units, sequence.blocks);
  }
  // Tokens of the prompt, of the output and `beyond`, as they stand behind each other.
  std::vector<TokenId> units;
  units.reserve(static_cast<size_t>(end - first));
  int32_t at = 0;
  for (const TokenSpan part : {TokenSpan(prompt), TokenSpan(sequence.output), beyond}) {
    const int32_t size = static_cast<int32_t>(part.size());
    const int32_t from = std::clamp(first - at, 0, size), to = std::clamp(end - at, 0, size);
    units.insert(units.end(), part.begin() + from, part.begin() + to);
    at += size;
  }
  cache_->extend(key, sequence.path, units, sequence.blocks);
}

void PageSupply::plan_saves(const Sequence& sequence, Work& work) {
  if (cache_ == nullptr || !options_.state_checkpoints || sequence.path.lost) return;
  const int32_t unit = cache_->unit_tokens(), end = work.first + work.count;
  const auto save_behind = [&](int32_t tokens) {
    if (tokens <= work.first || tokens > end) return;
    const std::optional<CheckpointId> checkpoint =
        tokens <= sequence.prompt_length()
            ? cache_->take_checkpoint()
            : cache_->take_checkpoint_for_answer(sequence.answer_checkpoint);
    if (!checkpoint) return;
    work.saves.push_back({tokens, *checkpoint});
    ++saves_in_flight_;
  };
  const auto* prefilling = std::get_if<Prefilling>(&sequence.state);
  if (prefilling == nullptr) {
    if (end % unit == 0) save_behind(end);
    return;
  }
  const int32_t last = std::max(0, prefilling->target - kPromptTail) / unit * unit;
  if (sequence.branch_tokens < last) save_behind(sequence.branch_tokens);
  save_behind(last);
}

void PageSupply::note_saves(Sequence& sequence, const Work& work) {
  for (const StateSave& save : work.saves) {
    --saves_in_flight_;
    if (!sequence.running()) {
      cache_->give_back_checkpoint(save.checkpoint);
      continue;
    }
    const auto attached = cache_->attach_checkpoint(save.checkpoint, sequence.path, save.tokens);
    if (!attached) continue;
    ++states_saved_;
    if (save.tokens <= sequence.prompt_length()) continue;
    if (sequence.answer_checkpoint) cache_->drop_checkpoint(*sequence.answer_checkpoint);
    sequence.answer_checkpoint = attached;
  }
}

void PageSupply::forget(Sequence& sequence) {
  if (cache_ == nullptr) return;
  int32_t units = sequence.prefix_tokens / cache_->unit_tokens();
  if (options_.state_checkpoints) units = cache_->units_of_checkpoint_before(sequence.path, units);
  cache_->forget_from(sequence.path, units);
}

void PageSupply::collect_moves(StepPlan& plan) {
  if (cache_ == nullptr || options_.tiers.empty()) return;
  const TierMoves moves = cache_->take_moves();
  plan.stores.insert(plan.stores.end(), moves.stores.begin(), moves.stores.end());
  plan.stores_ahead.insert(plan.stores_ahead.end(), moves.stores_ahead.begin(),
                           moves.stores_ahead.end());
  plan.loads.insert(plan.loads.end(), moves.loads.begin(), moves.loads.end());
}

int64_t PageSupply::free_pages_for(const Sequence& sequence) const {
  const int64_t kept = stands_behind_kept(sequence) ? kept_->pages : 0;
  return std::max<int64_t>(0, pool_.free_count() - kept);
}

void PageSupply::await(Sequence& sequence, uint64_t step) const {
  if (sequence.awaits_pages_since == 0) sequence.awaits_pages_since = step;
}

// A fence falls within steps_in_flight_max plans. A sequence that waited so long and has no pages
// met those that sliding windows of others turn over: they take again what they give back.
int64_t PageSupply::turned_over(const Sequence& sequence, uint64_t step) const {
  const uint64_t since = sequence.awaits_pages_since;
  const auto depth = static_cast<uint64_t>(options_.steps_in_flight_max);
  return since == 0 || step < since + depth ? 0 : pool_.fenced_count();
}

void PageSupply::pin(Sequence& victim) {
  if (cache_ == nullptr || victim.path.lost || victim.path.units == 0) return;
  const int32_t unit = cache_->unit_tokens();
  const PrefixMatch match = longest_prefix(victim, victim.path.units * unit);
  cache_->pin(match);
  victim.pinned_tokens = match.tokens / unit * unit;
  if (victim.pinned_tokens == 0) return;
  pinned_.push_back(&victim);
  ++pin_changes_;
}

void PageSupply::unpin(Sequence& sequence) {
  const int32_t tokens = std::exchange(sequence.pinned_tokens, 0);
  if (tokens == 0) return;
  std::erase(pinned_, &sequence);
  ++pin_changes_;
  cache_->unpin(key_of(*sequence.request),
                TokenSpan(sequence.known_tokens()).first(static_cast<size_t>(tokens)));
}

int32_t PageSupply::pages_to_load(const Sequence& preempted) const {
  return cache_->pages_to_load(longest_prefix(preempted, preempted.pinned_tokens));
}

// As if it had joined and left again: the pages are idle when the step was applied.
void PageSupply::load_ahead(const Sequence& preempted, Ticket step) {
  const PrefixMatch match = longest_prefix(preempted, preempted.pinned_tokens);
  loaded_ahead_ += static_cast<uint64_t>(cache_->pages_to_load(match));
  SequenceBlocks blocks(options_.groups);
  blocks.adopt(cache_->acquire(match).pages, match.tokens);
  blocks.release_all(pool_, step);
}

int32_t PageSupply::store_ahead(const Sequence& preempted, int32_t pages) {
  return cache_->store_ahead(longest_prefix(preempted, preempted.pinned_tokens), pages);
}

int32_t PageSupply::reserve_tokens() const {
  return options_.allocation == KvAllocation::kReserveMax ? options_.max_model_len : 0;
}

}  // namespace headrace
