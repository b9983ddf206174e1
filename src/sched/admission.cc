#include "sched/admission.h"

#include <algorithm>

#include "kv/kv_demand.h"

namespace headrace {
namespace {

// From this many preemptions on a sequence joins only with all the pages it can ever need.
constexpr int32_t kPreemptionsBeforeGuarantee = 2;

}  // namespace

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
  const bool forked = sequence.request->sampling.n > 1 && sequence.followers.empty();
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
  const bool guaranteed = candidate.preemptions >= kPreemptionsBeforeGuarantee;
  if (guaranteed) {
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
  // After one preemption: room for everybody to grow by a page.
  const auto everybody = static_cast<int64_t>((running.size() + 1) * options_.groups.size());
  return promised + own + (candidate.preemptions > 0 ? everybody : 0);
}

void AdmissionControl::allocation_failed(int64_t running) {
  const int64_t tenth = std::max<int64_t>(1, running / 10);
  finishes_to_wait_ = std::min<int64_t>(tenth, options_.admission_cooldown_max);
}

void AdmissionControl::sequence_ended() {
  if (finishes_to_wait_ > 0) --finishes_to_wait_;
}

}  // namespace headrace
