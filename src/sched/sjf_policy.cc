#include "sched/sjf_policy.h"

namespace headrace {

Sequence* SjfPredictedPolicy::next(const StepView& view) {
  Sequence* best = *view.queue.begin();
  if (best->rank.level == kPromotedLevel || view.free_slots == 0) return best;
  int candidates = 0;
  for (Sequence* waiting : view.queue) {
    if (candidates++ == kCandidatesMax) break;
    State& state = memory_.of(*waiting);
    if (predictor_.is_stale(state.predicted_at)) {
      state.bucket = predictor_.bucket_at(*waiting->request, 0.5);
      state.predicted_at = predictor_.examples();
    }
    if (state.bucket < memory_.of(*best).bucket) best = waiting;
  }
  return best;
}

void SjfPredictedPolicy::note(SequenceEvent event, Sequence& sequence) {
  memory_.follow(event, sequence);
  if (event != SequenceEvent::kFinished) return;
  predictor_.learn(*sequence.request, static_cast<int32_t>(sequence.output.size()));
}

}  // namespace headrace
