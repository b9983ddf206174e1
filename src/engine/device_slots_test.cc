#include "engine/device_slots.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tensor/device.h"

namespace headrace::device_slots_test {
namespace {

std::vector<BlockId> blocks(std::initializer_list<int32_t> values) {
  std::vector<BlockId> ids;
  for (const int32_t value : values) ids.emplace_back(value);
  return ids;
}

class DeviceSlotsTest : public ::testing::Test {
 protected:
  // What a step would leave in zeroed tables, its entries applied in this order.
  std::vector<int32_t> tables(bool backwards) const {
    std::vector<int32_t> tables(2 * 4);
    std::vector<BlockTableEntry> entries(slots_.entries().begin(), slots_.entries().end());
    if (backwards) std::reverse(entries.begin(), entries.end());
    for (const BlockTableEntry& entry : entries)
      tables[static_cast<size_t>(entry.index)] = entry.block;
    return tables;
  }

  std::unique_ptr<Device> device_ = create_cpu_device(1);
  DeviceSlots slots_ =
      DeviceSlots::create(*device_,
                          {.slot_count = 2, .group_count = 1, .blocks_max = 4, .vocab_size = 8})
          .value();
  const std::shared_ptr<Request> request_ = std::make_shared<Request>();
};

// The entries of a step are applied side by side: a sequence that joins on a shared page and writes
// into a copy of it must be told of the copy alone.
TEST_F(DeviceSlotsTest, ACopyReplacesTheSharedPageOfTheSameStep) {
  StepPlan plan;
  plan.admitted.push_back(
      {.slot = SlotId(1),
       .request = request_,
       .blocks = {{.group = 0, .first_index = 0, .blocks = blocks({20, 21, 22})}}});
  plan.copies.push_back({.from = BlockId(22), .to = BlockId(30)});
  plan.work.push_back({.slot = SlotId(1),
                       .new_blocks = {{.group = 0, .first_index = 2, .blocks = blocks({30, 31})}}});
  plan.work.push_back(
      {.slot = SlotId(0), .new_blocks = {{.group = 0, .first_index = 3, .blocks = blocks({40})}}});
  slots_.collect(plan);
  const std::vector<int32_t> expected = {0, 0, 0, 40, 20, 21, 30, 31};
  EXPECT_EQ(slots_.entries().size(), 5u);
  EXPECT_EQ(tables(false), expected);
  EXPECT_EQ(tables(true), expected);
}

// Of the prompt that it is in, and how often in the output; in a window as often as there.
TEST_F(DeviceSlotsTest, MarksAreOfWhatPenaltiesLookAt) {
  request_->prompt = {3, 5, 3};
  request_->sampling.presence_penalty = 1;
  StepPlan plan;
  plan.admitted.push_back({.slot = SlotId(1), .request = request_, .tokens = {3, 5, 3, 6, 5}});
  const auto marks = [&](int32_t window) {
    request_->sampling.penalty_window = window;
    slots_.collect(plan);
    std::vector<std::pair<int64_t, bool>> seen;  // token, whether it counts
    for (const TokenMark& mark : slots_.marks()) seen.emplace_back(mark.index - 8, mark.in_output);
    return seen;
  };
  using Marks = std::vector<std::pair<int64_t, bool>>;
  EXPECT_EQ(marks(-1), (Marks{{3, false}, {5, false}, {3, false}, {6, true}, {5, true}}));
  EXPECT_EQ(marks(4), (Marks{{5, true}, {3, true}, {6, true}, {5, true}}));
  EXPECT_EQ(marks(1), (Marks{{5, true}}));
  EXPECT_EQ(marks(64), (Marks{{3, true}, {5, true}, {3, true}, {6, true}, {5, true}}));
}

// A context length of a file, times the sequences of a step.
TEST_F(DeviceSlotsTest, TablesThatAreTooLargeAreRefused) {
  const auto slots = DeviceSlots::create(
      *device_, {.slot_count = 256, .group_count = 1, .blocks_max = 1 << 23, .vocab_size = 8});
  EXPECT_EQ(slots.status().message(),
            "block tables of 256 sequences of 8388608 blocks each are more than a GPU's step can "
            "address: lower --max-num-seqs or --max-model-len");
}

}  // namespace
}  // namespace headrace::device_slots_test
