#include "sched/swapper.h"

#include <algorithm>
#include <numeric>

namespace headrace {
namespace {

// Turns are estimated anew every so many steps, or when somebody gave way or came back, for so many
// that gave way, by so many in line.
constexpr uint64_t kEvery = 4;
constexpr size_t kTurnsMax = 128;
constexpr double kLineMax = 256;
// Pages come back this long before their turn.
constexpr double kStepsAhead = 32;

// A step writes so many tokens, and each sequence at least begins a page.
int32_t pages_of_steps(const SchedulerOptions& options) {
  int32_t pages = 0;
  for (const KvGroupSpec& group : options.groups) {
    pages += options.max_num_batched_tokens / group.block_tokens + options.max_num_seqs;
  }
  return std::min(pages * options.steps_in_flight_max, options.block_count / 4);
}

}  // namespace

Swapper::Swapper(const SchedulerOptions& options, const QueuePolicy& policy, const BlockPool& pool,
                 PrefixCache* cache, PageSupply& supply, const SequenceTable& table)
    : options_(options),
      policy_(policy),
      pool_(pool),
      cache_(cache),
      supply_(supply),
      table_(table),
      pages_of_a_step_(pages_of_steps(options)) {}

void Swapper::note_step(double seconds) {
  constexpr double kPart = 0.1;
  step_seconds_ += kPart * (seconds - step_seconds_);
}

// First what nobody waits for goes, then what has its turn last. Those whose turn is near stay but
// for what the next step may need.
void Swapper::move_ahead(uint64_t step) {
  if (cache_ == nullptr || options_.tiers.empty() || !policy_.rules().swaps_ahead) return;
  if (step % kEvery == 0 || pins_seen_ != supply_.pin_changes()) estimate_turns(step);
  int32_t to_load = 0;
  const Turn* next = next_to_load(to_load);
  // Each that runs may begin a page in each group, and the next in line brings a prompt.
  const auto least = static_cast<int32_t>(table_.running().size() * options_.groups.size());
  const int32_t coming = pool_.unused_count() + pool_.fenced_count();
  int32_t wanted = pages_of_a_step_ + to_load - coming;
  if (wanted > 0) wanted -= cache_->evict_ahead(wanted);
  for (size_t i = turns_.size(); i-- > 0 && wanted > 0;) {
    const bool near = turns_[i].seconds <= kStepsAhead * step_seconds_;
    const int32_t pages = near ? wanted - (pages_of_a_step_ + to_load - least) : wanted;
    if (pages > 0) wanted -= supply_.store_ahead(*turns_[i].sequence, pages);
  }
  if (next == nullptr) return;
  // What went down meanwhile may have been pages that it shares with those whose turn is far.
  to_load = supply_.pages_to_load(*next->sequence);
  if (to_load == 0 || pool_.unused_count() < to_load + least) return;
  supply_.load_ahead(*next->sequence, Ticket(step));
}

// The next of those whose turn is near that has pages below; `pages`: how many.
const Swapper::Turn* Swapper::next_to_load(int32_t& pages) const {
  for (const Turn& turn : turns_) {
    if (turn.seconds > kStepsAhead * step_seconds_) break;
    pages = supply_.pages_to_load(*turn.sequence);
    if (pages > 0) return &turn;
  }
  pages = 0;
  return nullptr;
}

void Swapper::estimate_turns(uint64_t step) {
  pins_seen_ = supply_.pin_changes();
  turns_.clear();
  for (Sequence* sequence : supply_.pinned()) {
    if (turns_.size() == kTurnsMax) break;
    if (sequence->rank.background) continue;
    const uint64_t promoted = sequence->waits_since + options_.promote_after_steps;
    const double to_promotion = promoted > step ? static_cast<double>(promoted - step) : 0;
    turns_.push_back({std::min(to_promotion * step_seconds_, seconds_to_run(*sequence)), sequence});
  }
  std::sort(turns_.begin(), turns_.end());
}

// So many of those that run must end, or fall behind it, as wait before it, and one more.
double Swapper::seconds_to_run(const Sequence& sequence) const {
  if (sequence.rank.level == kPromotedLevel) return 0;
  double places = 1;
  for (const Sequence* each : table_.line().live()) {
    if (each == &sequence || places > kLineMax) break;
    ++places;
  }
  double seconds = 0, before = 0;
  for (const Sequence* each : table_.running().live()) {
    if (each->rank.level == kPromotedLevel || sequence.rank < each->rank) continue;
    seconds += policy_.seconds_before(*each, sequence);
    ++before;
  }
  return before > 0 ? places * seconds / (before * before) : 0;
}

}  // namespace headrace
