#include "sched/sequence.h"

namespace headrace {

bool Sequence::can_decode() const {
  if (samples_in_flight > 0 && lookahead() == Lookahead::kAfterResult) return false;
  const int32_t sampled = static_cast<int32_t>(output.size()) + samples_in_flight;
  return sampled < request->sampling.max_tokens && extent.known() &&
         extent.most < prompt_length() + sampled;
}

Sequence& ranked_by(Sequence& sequence) {
  if (!sequence.request->beams) return sequence;
  for (Sequence* each : sequence.entry->choices) {
    if (each != nullptr) return *each;
  }
  return sequence;
}

std::vector<Sequence*> running_with(Sequence& sequence) {
  if (!sequence.request->beams) return {&sequence};
  std::vector<Sequence*> beams;
  for (Sequence* each : sequence.entry->choices) {
    if (each != nullptr && each->running()) beams.push_back(each);
  }
  return beams;
}

}  // namespace headrace
