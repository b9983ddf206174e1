#include "sched/promotion.h"

#include <algorithm>

namespace headrace {
namespace {

bool is_promoted(const Sequence* sequence) { return sequence->rank.level == kPromotedLevel; }

}  // namespace

// The sequence that has waited longest is first, whether it runs (the token budget never reached
// it) or not: where few may be promoted, those that run would take every turn from those that wait.
void Promotion::promote_starving(uint64_t step) {
  if (!policy_.rules().may_starve) return;
  const auto after = static_cast<uint64_t>(options_.promote_after_steps);
  while (may_promote()) {
    table_.drop_ended_waits();
    Sequence* sequence = longest_without_work();
    if (sequence == nullptr || sequence->waits_since + after > step) return;
    ++promotions_;
    table_.promote(*sequence, step);
  }
}

// A promoted sequence displaces others whatever that costs: so it waits until it may cost
// something.
bool Promotion::may_promote() const {
  if (!displacement_.affordable()) return false;
  const PolicyRules& rules = policy_.rules();
  if (rules.running_per_promoted == 0) return true;
  const int64_t share = std::max<int64_t>(1, table_.running().size() / rules.running_per_promoted);
  return promoted_count() < std::min<int64_t>(share, rules.promoted_max);
}

// They are the first of what runs and of the line.
int64_t Promotion::promoted_count() const {
  const std::span<Sequence* const> running = table_.running().live();
  const WaitingQueue& line = table_.line().live();
  const auto first_running = std::find_if_not(running.begin(), running.end(), is_promoted);
  const auto first_waiting = std::find_if_not(line.begin(), line.end(), is_promoted);
  return std::distance(running.begin(), first_running) + std::distance(line.begin(), first_waiting);
}

// Of the live sequences that are not promoted; null: there is none.
Sequence* Promotion::longest_without_work() const {
  Sequence* longest = nullptr;
  for (Sequence* running : table_.running().live()) {
    if (is_promoted(running)) continue;
    if (longest == nullptr || running->waits_since < longest->waits_since) longest = running;
  }
  Sequence* waiting = table_.line().longest_waiting();
  if (waiting == nullptr) return longest;
  return longest == nullptr || waiting->waits_since < longest->waits_since ? waiting : longest;
}

}  // namespace headrace
