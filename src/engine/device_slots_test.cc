#include "engine/device_slots.h"

#include <gtest/gtest.h>

#include "tensor/device.h"

namespace headrace {
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

// A context length of a file, times the sequences of a step.
TEST_F(DeviceSlotsTest, TablesThatAreTooLargeAreRefused) {
  const auto slots = DeviceSlots::create(
      *device_, {.slot_count = 256, .group_count = 1, .blocks_max = 1 << 23, .vocab_size = 8});
  EXPECT_EQ(slots.status().message(),
            "block tables of 256 sequences of 8388608 blocks each are more than a GPU's step can "
            "address: lower --max-num-seqs or --max-model-len");
}

}  // namespace
}  // namespace headrace
