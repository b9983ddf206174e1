// For the tests of ops with states: entries full of NaN, and steps of one or two sequences.
#pragma once

#include <limits>
#include <vector>

#include "ops/op_fixture.h"
#include "ops/states/state_view.h"

namespace headrace {

class TestStates {
 public:
  TestStates(int32_t entries, int64_t bytes)
      : stride_((bytes + 63) / 64 * 64),
        values_(static_cast<size_t>(entries * stride_ / 4 + 16),
                std::numeric_limits<float>::quiet_NaN()) {}

  StateView view(std::span<const StateSequence> sequences) {
    const auto at = reinterpret_cast<uintptr_t>(values_.data());
    return {reinterpret_cast<std::byte*>((at + 63) / 64 * 64), stride_, sequences};
  }
  std::vector<float> entry(int32_t entry, int64_t bytes) {
    const float* const at = view({}).at(entry);
    return {at, at + bytes / 4};
  }

 private:
  const int64_t stride_;
  std::vector<float> values_;
};

// That the bits of a text's rows do not depend on the steps that it comes in, nor on where a state
// was saved and gone on from, and that a sequence starts with nothing of another's. `run` runs a
// kernel over rows [0, rows) of its inputs as the sequences of the states say, and writes `out`.
template <class Run>
void expect_bits_whatever_the_steps(int32_t rows, int64_t columns, int64_t state_bytes,
                                    const Run& run) {
  TestStates states(4, state_bytes);
  const auto run_steps = [&](std::span<const StateSequence> steps, TestMatrix& out) {
    for (const StateSequence& step : steps) run(states.view({&step, 1}), out);
  };
  TestMatrix whole(rows, columns);
  const StateCopy save{20, 2};
  const StateSequence all{.row_count = rows, .entry = 0, .saves = {&save, 1}};
  run_steps({&all, 1}, whole);

  TestMatrix cut(rows, columns);
  const StateSequence steps[] = {
      {0, 1, 0, 1, {}}, {1, 2, 1, 1, {}}, {3, rows - 4, 3, 1, {}}, {rows - 1, 1, rows - 1, 1, {}}};
  run_steps(steps, cut);
  EXPECT_TRUE(same_bits(cut, whole));
  EXPECT_EQ(states.entry(1, state_bytes), states.entry(0, state_bytes));

  TestMatrix rest = whole;
  const StateSequence from_saved{20, rows - 20, 20, 2, {}};
  run_steps({&from_saved, 1}, rest);
  EXPECT_TRUE(same_bits(rest, whole));
  EXPECT_EQ(states.entry(2, state_bytes), states.entry(0, state_bytes));

  const StateSequence two[] = {{0, 12, 0, 3, {}}, {12, rows - 12, 0, 1, {}}};
  TestMatrix apart(rows, columns);
  run(states.view(two), apart);
  for (int32_t t = 0; t < 12; ++t) {
    EXPECT_TRUE(same_bits(&apart.at(t, 0), &whole.at(t, 0), columns));
  }
  EXPECT_FALSE(same_bits(&apart.at(12, 0), &whole.at(12, 0), columns));
}

}  // namespace headrace
