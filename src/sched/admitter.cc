#include "sched/admitter.h"

#include <algorithm>

namespace headrace {

Admitter::Admitter(const SchedulerOptions& options, QueuePolicy& policy, const BlockPool& pool,
                   PageSupply& supply, AdmissionControl& admission, SequenceTable& table,
                   const StepPace& pace, const Displacement& displacement)
    : options_(options),
      policy_(policy),
      pool_(pool),
      supply_(supply),
      admission_(admission),
      table_(table),
      pace_(pace),
      displacement_(displacement),
      cached_tokens_([this](const Sequence& waiting) { return cached_tokens(waiting); }),
      fits_([this](const Sequence& waiting) { return find_fitting_prefix(waiting).has_value(); }) {}

StepView Admitter::view(uint64_t step) const {
  return {.running = table_.running().live(),
          .queue = table_.line().live(),
          .free_slots = static_cast<int32_t>(table_.slots().free_count()),
          .step = step,
          .now_seconds = pace_.now(),
          .cost = pace_.known_cost(),
          .cached_tokens = cached_tokens_,
          .fits = fits_};
}

// --- queries

bool Admitter::held_back(const Sequence& head) const {
  if (!admission_.on_hold() || table_.running().empty()) return false;
  if (head.rank.level == kPromotedLevel) return false;
  return head.rank.background || !table_.running().has_background();
}

bool Admitter::may_join(const Sequence& head, BatchView batch) const {
  batch.rows_at_start = table_.live_rows_at_start();
  batch.resumes = head.preemptions + head.yields > 0;
  // The live see only each other.
  const std::span<Sequence* const> running =
      head.rank.background ? table_.running().all() : table_.running().live();
  for (size_t i = 0; i < running.size(); ++i) {
    if (i == 0 || running[i]->request != running[i - 1]->request) ++batch.requests_running;
  }
  return policy_.admits(batch);
}

bool Admitter::leaves_headroom(const Sequence& head, const PrefixMatch& hit) const {
  const bool asks = options_.allocation == KvAllocation::kPaged && head.reserved == 0 &&
                    !policy_.rules().holds_finished_rows && head.rank.level != kPromotedLevel;
  const std::span<Sequence* const> running = table_.running().all();
  if (!asks || running.empty() || displacement_.victim_for(head) != nullptr) return true;
  const int64_t pages = supply_.pages_to_join(head, hit, running);
  return admission_.leaves_headroom(head, running, supply_.pages_to_come() - pages,
                                    pace_.known_cost());
}

int32_t Admitter::cached_tokens(const Sequence& waiting) const {
  return supply_.find_prefix(waiting, table_.running().all()).tokens;
}

std::optional<PrefixMatch> Admitter::find_fitting_prefix(const Sequence& waiting) const {
  if (table_.slots().free_count() <= waiting.followers.size()) return std::nullopt;
  const std::span<Sequence* const> running = table_.running().all();
  PrefixMatch hit = supply_.find_prefix(waiting, running);
  const int64_t pages = supply_.pages_to_join(waiting, hit, running);
  if (pages > supply_.free_pages_for(waiting)) return std::nullopt;
  return hit;
}

bool Admitter::has_room(const Sequence& head) const {
  if (head.last_step > pool_.applied()) return false;
  const std::optional<PrefixMatch> hit = find_fitting_prefix(head);
  return hit && leaves_headroom(head, *hit);
}

// --- commands

Sequence* Admitter::name_next(uint64_t step) {
  const StepView now = view(step);
  while (policy_.reconsider(**now.queue.begin(), now.now_seconds)) {
    table_.place_again(**now.queue.begin());
  }
  return policy_.next(now);
}

bool Admitter::make_slots(const Sequence& head) {
  const size_t needed = 1 + head.followers.size();
  while (table_.slots().free_count() + table_.slots().leaving_count() < needed) {
    Sequence* victim = displacement_.victim_for(head);
    if (victim == nullptr) break;
    table_.yield(*victim);
  }
  return table_.slots().free_count() >= needed;
}

bool Admitter::make_pages(Sequence& head, const PrefixMatch& hit, uint64_t step) {
  const int64_t turned_over = supply_.turned_over(head, step);
  const auto needed = [&] { return supply_.pages_to_join(head, hit, table_.running().all()); };
  if (supply_.stands_behind_kept(head)) return needed() <= supply_.free_pages_for(head);
  while (needed() > supply_.pages_to_come() - turned_over) {
    Sequence* victim = displacement_.victim_for(head);
    if (victim == nullptr) break;
    table_.yield(*victim);
    head.awaits_pages_since = 0;
  }
  if (needed() <= pool_.free_count()) return true;
  supply_.await(head, step);
  return false;
}

std::optional<Admitter::Joining> Admitter::make_room(uint64_t step) {
  const RunningSet& running = table_.running();
  if (running.empty() || table_.line().live().empty()) return std::nullopt;
  Sequence* head = name_next(step);
  // A policy that names none, for want of slots or pages, gets those of the background.
  while (head == nullptr && running.has_background()) {
    table_.yield(running.youngest());
    table_.release_slots();
    head = name_next(step);
  }
  if (head == nullptr || displacement_.victim_for(*head) == nullptr) return std::nullopt;
  if (head->last_step > pool_.applied() || held_back(*head)) return std::nullopt;
  if (!make_slots(*head)) table_.release_slots();
  const PrefixMatch hit = supply_.find_prefix(*head, running.all());
  make_pages(*head, hit, step);
  const int64_t pages = supply_.pages_to_join(*head, hit, running.all());
  // For pages that no sequence gives up, it waits behind those that hold them.
  if (pages > supply_.pages_to_come() || !leaves_headroom(*head, hit)) return std::nullopt;
  return Joining{head->rank, pages};
}

}  // namespace headrace
