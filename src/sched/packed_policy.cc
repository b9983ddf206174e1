#include "sched/packed_policy.h"

#include <algorithm>
#include <vector>

namespace headrace {

Sequence* PackedPredictedPolicy::next(const StepView& view) {
  Sequence* first = *view.queue.begin();
  if (predictor_.is_stale(memory_.of(*first).predicted_at)) predict(*first);
  // Alone, or too long in the queue: it is next whether it fits or not.
  if (view.running.empty() || first->rank.level == kPromotedLevel) return first;
  if (view.free_slots == 0) return nullptr;
  std::vector<Sequence*> candidates;
  for (Sequence* waiting : view.queue) {
    if (candidates.size() == kCandidatesMax) break;
    if (predictor_.is_stale(memory_.of(*waiting).predicted_at)) predict(*waiting);
    candidates.push_back(waiting);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Sequence* a, const Sequence* b) { return a->reserved > b->reserved; });
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Sequence* each) { return view.fits(*each); });
  return found == candidates.end() ? nullptr : *found;
}

int32_t PackedPredictedPolicy::reserved_length(Sequence& sequence) {
  if (sequence.is<Decoding>()) outgrow(sequence);
  const int32_t predicted =
      sequence.prompt_length() + predictor_.upper_bound(memory_.of(sequence).bucket);
  return std::max(predicted, sequence.known_length() + 1);
}

// The next bucket that holds what it has generated.
void PackedPredictedPolicy::outgrow(Sequence& sequence) {
  const auto length = static_cast<int32_t>(sequence.output.size());
  int32_t& bucket = memory_.of(sequence).bucket;
  while (bucket + 1 < predictor_.bucket_count() && predictor_.upper_bound(bucket) <= length) {
    ++bucket;
  }
}

void PackedPredictedPolicy::predict(Sequence& sequence) {
  State& state = memory_.of(sequence);
  // What it has overrun already is certain.
  const int32_t least = predictor_.bucket_of(static_cast<int32_t>(sequence.output.size()) + 1);
  state.bucket = std::max(least, predictor_.bucket_at(*sequence.request, kCertainty));
  state.predicted_at = predictor_.examples();
  sequence.reserved = std::min(reserved_length(sequence), sequence.length_max());
}

void PackedPredictedPolicy::note(SequenceEvent event, Sequence& sequence) {
  memory_.follow(event, sequence);
  if (event == SequenceEvent::kArrived) predict(sequence);
  if (event == SequenceEvent::kFinished) {
    predictor_.learn(*sequence.request, static_cast<int32_t>(sequence.output.size()));
  }
}

}  // namespace headrace
