#include "sched/ended_rows.h"

#include <algorithm>
#include <utility>

namespace headrace {

// A muted leader has no token to go on from, nor has a beam.
bool EndedRows::goes_on(const Sequence& sequence) const {
  return policy_.rules().computes_finished_rows && sequence.is<Decoding>() && !sequence.muted &&
         !sequence.rank.background && !sequence.request->beams;
}

void EndedRows::drop(LeavingSlot& leaving) {
  Sequence& row = *std::exchange(leaving.row, nullptr);
  row.blocks.release_all(pool_, row.last_step);
  row.prefix_tokens = 0;
  row.extent = {};
  row.state = Retiring{};
}

bool EndedRows::drop_one() {
  const std::span<LeavingSlot> leaving = slots_.leaving();
  const auto found = std::find_if(leaving.begin(), leaving.end(),
                                  [](const LeavingSlot& each) { return each.row != nullptr; });
  if (found == leaving.end()) return false;
  drop(*found);
  return true;
}

void EndedRows::drop_all() {
  while (drop_one()) {
  }
}

}  // namespace headrace
