// How ops of states share sequences out over the threads of a CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/op.h"
#include "ops/states/state_after_row.h"
#include "ops/states/state_view.h"

namespace headrace {

// The saves of a sequence, of what lies `first` numbers into a state.
inline void saves_of(const StateView& states, const StateSequence& sequence, int64_t first,
                     std::vector<StateAfterRow>& saves) {
  saves.clear();
  for (const StateCopy& save : sequence.saves) {
    saves.push_back({save.tokens - sequence.position - 1, states.at(save.entry) + first});
  }
}

// run(sequence, head, saves) for each head of each sequence, on the threads of the device. A head's
// state has `numbers`, and they lie side by side.
template <class Run>
void for_each_head(OpContext& context, const StateView& states, int64_t heads, int64_t numbers,
                   const Run& run) {
  const auto count = static_cast<int64_t>(states.sequences.size()) * heads;
  context.device.pool().parallel_for(count, 1, [&](int64_t first, int64_t last) {
    std::vector<StateAfterRow> saves;
    for (int64_t i = first; i < last; ++i) {
      const StateSequence& sequence = states.sequences[static_cast<size_t>(i / heads)];
      const int64_t head = i % heads;
      saves_of(states, sequence, head * numbers, saves);
      run(sequence, head, saves);
    }
  });
}

}  // namespace headrace
