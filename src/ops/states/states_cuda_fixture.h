// For the tests of ops with states on a GPU: steps of several sequences, and their states on both
// devices.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/states/state_view.h"

namespace headrace {

inline constexpr int32_t kEntries = 9;
inline constexpr int32_t kUntouched = 8;  // of no sequence

// The sequences of a step, and the same as a GPU reads them.
struct StateSteps {
  std::vector<StateSequence> sequences;
  std::vector<StateCopy> saves;

  static StateSteps mixed() {
    StateSteps steps;
    steps.saves = {{1, 4}, {20, 5}, {140, 6}, {141, 7}};
    const std::span<const StateCopy> saves(steps.saves);
    steps.sequences = {{0, 40, 0, 0, saves.subspan(0, 2)},
                       {40, 1, 7, 1, {}},
                       {41, 2, 1, 2, {}},
                       {43, 37, 104, 3, saves.subspan(2, 2)}};
    return steps;
  }
  // As recorded steps have them.
  static StateSteps decodes() {
    StateSteps steps;
    steps.sequences = {{0, 1, 0, 0, {}}, {1, 1, 1, 1, {}}, {2, 1, 2, 2, {}}, {3, 1, 300, 3, {}}};
    return steps;
  }
  int32_t rows() const { return sequences.back().row_first + sequences.back().row_count; }
  int32_t rows_max() const {
    int32_t most = 0;
    for (const StateSequence& sequence : sequences) most = std::max(most, sequence.row_count);
    return most;
  }
  std::vector<DeviceStateSequence> for_device() const {
    std::vector<DeviceStateSequence> all;
    for (const StateSequence& s : sequences) {
      const auto first = s.saves.empty() ? 0 : static_cast<int32_t>(s.saves.data() - saves.data());
      all.push_back({s.row_first, s.row_count, s.position, s.entry, first,
                     static_cast<int32_t>(s.saves.size())});
    }
    return all;
  }
};

// States of all entries, on the host and on the device.
class StatesOnBoth {
 public:
  StatesOnBoth(TestDevice& cuda, Rng& rng, int64_t bytes, const StateSteps& steps)
      : floats_((bytes + 63) / 64 * 16),
        host_(random_floats(rng, kEntries * floats_)),
        before_(host_),
        device_(cuda, host_),
        sequences_(cuda, steps.for_device()),
        saves_(cuda, steps.saves.empty() ? std::vector<StateCopy>(1) : steps.saves),
        steps_(steps) {}

  StateView on_host() {
    return {reinterpret_cast<std::byte*>(host_.data()), floats_ * 4, steps_.sequences};
  }
  StateView on_device() {
    return {.base = reinterpret_cast<std::byte*>(device_.data()),
            .stride = floats_ * 4,
            .sequences = {},
            .on_device = {.sequences = sequences_.data(),
                          .saves = saves_.data(),
                          .count = static_cast<int32_t>(steps_.sequences.size()),
                          .rows_max = steps_.rows_max()}};
  }
  std::vector<float> entry_on_device(int32_t entry, int64_t bytes) const {
    const std::vector<float> all = device_.read();
    const auto first = all.begin() + entry * floats_;
    return {first, first + bytes / 4};
  }
  void expect_alike(double tolerance) {
    const std::vector<float> device = device_.read();
    expect_near(device, host_, tolerance, tolerance);
    for (int64_t i = kUntouched * floats_; i < std::ssize(device); ++i) {
      ASSERT_EQ(device[static_cast<size_t>(i)], before_[static_cast<size_t>(i)]);
    }
  }

 private:
  const int64_t floats_;  // of an entry
  std::vector<float> host_;
  const std::vector<float> before_;
  CudaArray<float> device_;
  CudaArray<DeviceStateSequence> sequences_;
  CudaArray<StateCopy> saves_;
  const StateSteps& steps_;
};

// Rows [first, last) of a dense matrix.
inline std::vector<float> rows_between(const std::vector<float>& values, int64_t columns,
                                       int32_t first, int32_t last) {
  return {values.begin() + first * columns, values.begin() + last * columns};
}

// Of what a kernel wrote, the rows of sequences. Fails the test where a row behind them was
// written.
inline std::vector<float> rows_of_sequences(const CudaMatrix& out, const StateSteps& steps,
                                            int64_t columns) {
  const std::vector<float> all = out.read();
  const auto rows = static_cast<int32_t>(std::ssize(all) / columns);
  for (const float value : rows_between(all, columns, steps.rows(), rows)) {
    EXPECT_TRUE(std::isnan(value)) << "a row of no sequence was written";
  }
  return rows_between(all, columns, 0, steps.rows());
}

// As state_fixture.h has it on a CPU, of a kernel on a GPU: that the bits of a text's rows depend
// neither on the steps that it comes in, nor on where a state was saved and gone on from, nor on
// what else is in a step. `run` runs a kernel over rows of its inputs as the sequences of the
// states say, and writes `out` [rows, columns].
template <class Run>
void expect_cuda_bits_whatever_the_steps(TestDevice& cuda, DType dtype, int32_t rows,
                                         int64_t columns, int64_t state_bytes, const Run& run) {
  StateSteps steps;
  steps.saves = {{20, 2}, {20, 5}};
  steps.sequences = {{0, rows, 0, 0, steps.saves},  // whole
                     {0, 1, 0, 1, {}},              // in steps
                     {1, 2, 1, 1, {}},
                     {3, rows - 4, 3, 1, {}},
                     {rows - 1, 1, rows - 1, 1, {}},
                     {20, rows - 20, 20, 2, {}},  // from where it was saved
                     {0, 12, 0, 3, {}},           // two beside each other
                     {20, rows - 20, 20, 5, {}}};
  Rng rng(5);
  StatesOnBoth states(cuda, rng, state_bytes, steps);
  const auto run_steps = [&](const std::vector<std::pair<int32_t, int32_t>>& launches) {
    const CudaMatrix out(cuda, dtype, rows, columns, 3, nullptr);
    for (const auto& [first, count] : launches) {
      StateView view = states.on_device();
      view.on_device.sequences += first;
      view.on_device.count = count;
      view.on_device.rows_max = 0;
      for (int32_t i = first; i < first + count; ++i) {
        view.on_device.rows_max =
            std::max(view.on_device.rows_max, steps.sequences[static_cast<size_t>(i)].row_count);
      }
      run(view, out.view());
    }
    return out.read();
  };
  const auto rows_of = [&](const std::vector<float>& values, int32_t first, int32_t last) {
    return rows_between(values, columns, first, last);
  };
  const std::vector<float> whole = run_steps({{0, 1}});
  EXPECT_EQ(run_steps({{1, 1}, {2, 1}, {3, 1}, {4, 1}}), whole);
  EXPECT_EQ(rows_of(run_steps({{5, 1}}), 20, rows), rows_of(whole, 20, rows));
  const std::vector<float> together = run_steps({{6, 2}});
  EXPECT_EQ(rows_of(together, 0, 12), rows_of(whole, 0, 12));
  EXPECT_EQ(rows_of(together, 20, rows), rows_of(whole, 20, rows));
  for (const int32_t entry : {1, 2, 5}) {
    EXPECT_EQ(states.entry_on_device(entry, state_bytes), states.entry_on_device(0, state_bytes))
        << entry;
  }
}

}  // namespace headrace
