#include "sched/waiting_ratio_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace {

bool WaitingRatioPolicy::admits(const BatchView& batch) const {
  return open_ && batch.token_budget_left > 0;
}

StepShape WaitingRatioPolicy::shape(const StepView& view) {
  const bool prefilled = std::exchange(joined_, 0) > 0;
  if (prefilled) steps_since_prefill_ = 0;
  const auto prefills = std::count_if(view.running.begin(), view.running.end(),
                                      [](const Sequence* s) { return s->is<Prefilling>(); });
  const bool decodes = prefills < static_cast<ptrdiff_t>(view.running.size());
  const bool in_prefill = prefills > 0;
  open_ = !in_prefill && (!decodes || (!prefilled && begins_prefill(view)));
  if (!open_ && !in_prefill) return decode();
  if (decodes && prefill_steps_ >= prefill_steps_max_) return decode();
  ++prefill_steps_;
  return StepShape::kPrefill;
}

bool WaitingRatioPolicy::begins_prefill(const StepView& view) const {
  if (view.queue.empty() || !view.fits(**view.queue.begin())) return false;
  const double least = std::floor(ratio_ * static_cast<double>(view.running.size()));
  const bool many = static_cast<double>(view.queue.size()) >= std::max(1.0, least);
  return many || steps_since_prefill_ >= steps_max_;
}

StepShape WaitingRatioPolicy::decode() {
  ++steps_since_prefill_;
  prefill_steps_ = 0;
  open_ = false;
  return StepShape::kDecode;
}

// A request that ends in line has left it and not joined.
void WaitingRatioPolicy::note(SequenceEvent event, Sequence& sequence) {
  if (event == SequenceEvent::kDequeued) ++joined_;
  if (event != SequenceEvent::kEnded || sequence.rank.background) return;
  const auto* waiting = std::get_if<Waiting>(&sequence.state);
  if (waiting != nullptr && waiting->leader == nullptr) --joined_;
}

}  // namespace headrace
