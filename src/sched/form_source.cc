#include "sched/form_source.h"

namespace headrace {

void FormSource::propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) {
  if (sequence.draft_memory == nullptr) {
    auto begun = std::make_unique<Place>();
    begun->matcher = sequence.request->constraint->begin();
    sequence.draft_memory = std::move(begun);
  }
  auto& place = static_cast<Place&>(*sequence.draft_memory);
  for (; place.read < sequence.output.size(); ++place.read) {
    place.matcher->accept(sequence.output[place.read]);
  }
  place.matcher->propose(static_cast<size_t>(bounds.depth), proposed.tokens);
}

}  // namespace headrace
