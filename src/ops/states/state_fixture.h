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

}  // namespace headrace
