#include "sched/admission.h"

#include <algorithm>
#include <cmath>

#include "kv/kv_demand.h"

namespace headrace {
namespace {

// From this many preemptions on a sequence joins only with all the pages it can ever need. Where
// headroom keeps most from being preempted at all, later: a guarantee empties the machine.
constexpr int32_t kPreemptionsBeforeGuarantee = 2;
constexpr int32_t kPreemptionsBeforeGuaranteeWithHeadroom = 5;
// A sequence that joins to be preempted saves so many times what computing it again costs: a part
// of those that do is preempted earlier than expected.
constexpr double kGainMin = 1.5;
// Its multiples are spread evenly over the turns, however many they are.
constexpr double kGoldenRatio = 0.6180339887498949;

}  // namespace

AdmissionControl::AdmissionControl(const SchedulerOptions& options)
    : options_(options), lengths_(options.max_model_len) {
  for (const KvGroupSpec& group : options.groups) {
    if (group.kind == KvKind::kFull) pages_per_token_ += 1.0 / group.block_tokens;
  }
}

int64_t AdmissionControl::pages_at(const Sequence& sequence, int32_t length) const {
  if (options_.allocation == KvAllocation::kReserveMax) length = options_.max_model_len;
  return peak_pages_forked(options_.groups, sequence.prompt_length(), length,
                           options_.max_num_batched_tokens,
                           1 + static_cast<int32_t>(sequence.followers.size()));
}

int64_t AdmissionControl::pages_next(const Sequence& sequence) const {
  return pages_at(sequence, std::min(sequence.known_length() + 1, sequence.length_max()));
}

// A fork may still have to copy its shared page: one more in each group.
int64_t AdmissionControl::pages_final(const Sequence& sequence) const {
  const bool forked = sequence.request->sequences() > 1 && sequence.followers.empty();
  return pages_at(sequence, sequence.length_max()) +
         (forked ? static_cast<int64_t>(options_.groups.size()) : 0);
}

int64_t AdmissionControl::pages_owed(const Sequence& sequence) const {
  int64_t pages = 0;
  if (sequence.is<Prefilling>() || options_.allocation == KvAllocation::kReserveMax) {
    pages = pages_next(sequence);
  }
  if (sequence.reserved > 0) pages = std::max(pages, pages_at(sequence, sequence.reserved));
  return std::max<int64_t>(0, pages - sequence.blocks.pages_held());
}

int64_t AdmissionControl::pages_promised(std::span<Sequence* const> running) const {
  int64_t pages = 0;
  for (const Sequence* sequence : running) pages += pages_owed(*sequence);
  return pages;
}

int64_t AdmissionControl::pages_required(const Sequence& candidate,
                                         std::span<Sequence* const> running) const {
  if (running.empty()) return pages_next(candidate);
  const int32_t before = options_.admission_headroom > 0 ? kPreemptionsBeforeGuaranteeWithHeadroom
                                                         : kPreemptionsBeforeGuarantee;
  if (candidate.preemptions >= before) {
    int64_t pages = pages_final(candidate);
    for (const Sequence* sequence : running) {
      pages += std::max<int64_t>(0, pages_final(*sequence) - sequence->blocks.pages_held());
    }
    return pages;
  }
  const int64_t promised = pages_promised(running);
  const int64_t own = candidate.reserved > 0
                          ? std::max(pages_at(candidate, candidate.reserved), pages_next(candidate))
                          : pages_next(candidate);
  // After one preemption: room for all to grow by a page.
  const auto everybody = static_cast<int64_t>((running.size() + 1) * options_.groups.size());
  return promised + own + (candidate.preemptions > 0 ? everybody : 0);
}

// Where lengths are a guess, each sequence has its own place in their distribution, the same every
// time: some of many end early and give room to the others. (Of a heavy tail all are expected to
// get long, and never do so together.) What it shares with others does not come back with it.
AdmissionControl::Trajectory AdmissionControl::trajectory_of(const Sequence& sequence) const {
  const SamplingParams& sampling = sequence.request->sampling;
  const auto tokens = static_cast<int32_t>(sequence.output.size());
  const double most = sampling.max_tokens - tokens;
  const bool forked = sequence.request->sequences() > 1;
  const int32_t shared = forked ? sequence.prompt_length() : sequence.prefix_tokens;
  Trajectory trajectory;
  const double turns = static_cast<double>(sequence.id.value) * kGoldenRatio;
  const double place = turns - std::floor(turns);
  trajectory.steps =
      sampling.ignore_eos
          ? most
          : std::min(most, options_.admission_headroom * lengths_.rest_at(tokens, place));
  trajectory.rate = pages_per_token_ * static_cast<double>(1 + sequence.followers.size());
  trajectory.pages = std::max(0.0, pages_per_token_ * (sequence.known_length() - shared));
  return trajectory;
}

// Memory runs out after so many steps, and the last that joined is computed again: its tokens cost
// a prompt's then. What they save until then is their share of what steps cost whatever is in them;
// a row by itself costs about as much as a token of a prompt. Where all run in step (answers of one
// length that came together) half of the memory would lie idle otherwise.
bool AdmissionControl::pays(const Sequence& candidate, std::span<Sequence* const> running,
                            double steps, const StepCost* cost) {
  if (cost == nullptr) return false;
  StepLoad step;
  for (const Sequence* sequence : running) {
    ++step.decodes;
    step.kv_tokens += sequence->known_length();
  }
  const double token = cost->seconds_per_prompt_token();
  const double saved = cost->seconds(step) / step.decodes - token;
  return saved * steps > kGainMin * token * (candidate.known_length() + steps);
}

bool AdmissionControl::leaves_headroom(const Sequence& candidate,
                                       std::span<Sequence* const> running, int64_t free_pages,
                                       const StepCost* cost) const {
  if (options_.admission_headroom <= 0) return true;
  const auto free = static_cast<double>(free_pages);
  trajectories_.assign(1, trajectory_of(candidate));
  double growth = trajectories_[0].rate * trajectories_[0].steps, rate = trajectories_[0].rate;
  for (const Sequence* sequence : running) {
    const Trajectory& trajectory = trajectories_.emplace_back(trajectory_of(*sequence));
    growth += trajectory.rate * trajectory.steps;
    rate += trajectory.rate;
  }
  if (growth <= free) return true;  // even if all ended last
  std::sort(trajectories_.begin(), trajectories_.end(),
            [](const Trajectory& a, const Trajectory& b) { return a.steps < b.steps; });
  // The most is held when one of them is about to end.
  double came_back = 0;
  for (const Trajectory& trajectory : trajectories_) {
    if (rate * trajectory.steps > free + came_back) {
      return pays(candidate, running, (free + came_back) / rate, cost);
    }
    rate -= trajectory.rate;
    came_back += trajectory.pages;
  }
  return true;
}

void AdmissionControl::allocation_failed(int64_t running) {
  const int64_t tenth = std::max<int64_t>(1, running / 10);
  finishes_to_wait_ = std::min<int64_t>(tenth, options_.openppl.cooldown_max);
}

void AdmissionControl::sequence_ended() {
  if (finishes_to_wait_ > 0) --finishes_to_wait_;
}

}  // namespace headrace
