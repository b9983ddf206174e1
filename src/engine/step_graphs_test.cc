#include "engine/step_graphs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

namespace headrace::step_graphs_test {
namespace {

class NoGraph final : public Graph {};

Result<StepGraphs::Recording> nothing(RecordedSize) {
  StepGraphs::Recording recording;
  recording.forward = std::make_unique<NoGraph>();
  recording.sample = std::make_unique<NoGraph>();
  return recording;
}

TEST(StepGraphs, PadsLittleToFewSizes) {
  const std::vector<int32_t> sizes = StepGraphs::sizes_up_to(256);
  EXPECT_LE(sizes.size(), 24u);
  const StepGraphs graphs(sizes, nothing);
  for (int32_t rows = 1; rows <= 256; ++rows) {
    const int32_t padded = graphs.padded_rows(rows);
    EXPECT_GE(padded, rows);
    EXPECT_LE(padded, rows + (rows <= 64 ? 7 : 15));
    EXPECT_EQ(graphs.padded_rows(padded), padded);
  }
  EXPECT_EQ(graphs.padded_rows(257), 0);
  EXPECT_EQ(StepGraphs::sizes_up_to(5), (std::vector<int32_t>{1, 2, 4, 5}));
  const std::vector<int32_t> more = StepGraphs::sizes_up_to(1000);
  EXPECT_EQ(std::vector<int32_t>(more.begin(), more.begin() + static_cast<int>(sizes.size())),
            sizes);
  EXPECT_EQ(more.size(), sizes.size() + 12);  // 320, 384, ... 960, 1000
  EXPECT_EQ(more.back(), 1000);
}

TEST(StepGraphs, KeepsTheSizesThatPay) {
  const std::vector<PaddedStepCost> costs{{1, 1.0}, {2, 1.005}, {4, 1.02}, {8, 1.2}, {16, 1.19}};
  // 8 rows cost no less than 16, and one is within 1 % of two.
  EXPECT_EQ(StepGraphs::worthwhile_sizes(costs), (std::vector<int32_t>{2, 4, 16}));
  EXPECT_EQ(StepGraphs::worthwhile_sizes({}), std::vector<int32_t>{});
}

TEST(StepGraphs, RecordsOnceWhatHasRun) {
  std::atomic<int> records = 0;
  StepGraphs graphs({4, 8}, [&](RecordedSize size) {
    ++records;
    return nothing(size);
  });
  EXPECT_EQ(graphs.find({4}), nullptr);  // it has not run
  graphs.has_run({4});
  graphs.has_run({4});
  graphs.wait();
  EXPECT_NE(graphs.find({4}), nullptr);
  EXPECT_EQ(graphs.find({8}), nullptr);
  EXPECT_EQ(records, 1);
  graphs.clear();
  EXPECT_EQ(graphs.find({4}), nullptr);
  graphs.has_run({4});
  graphs.wait();
  EXPECT_NE(graphs.find({4}), nullptr);
  EXPECT_EQ(graphs.recorded(), 1);
}

TEST(StepGraphs, StepsWithAdaptersHaveARecordingOfTheirOwn) {
  std::vector<RecordedSize> recorded;
  StepGraphs graphs({4}, [&](RecordedSize size) {
    recorded.push_back(size);
    return nothing(size);
  });
  graphs.has_run({4});
  graphs.wait();
  EXPECT_EQ(graphs.find({.rows = 4, .adapters = true}), nullptr);
  graphs.has_run({.rows = 4, .adapters = true});
  graphs.wait();
  EXPECT_NE(graphs.find({.rows = 4, .adapters = true}), nullptr);
  EXPECT_NE(graphs.find({.rows = 4, .adapters = true}), graphs.find({4}));
  EXPECT_EQ(recorded, (std::vector<RecordedSize>{{4, false}, {4, true}}));
}

TEST(StepGraphs, WhatCannotBeRecordedRunsAsItIs) {
  StepGraphs graphs({4}, [](RecordedSize) -> Result<StepGraphs::Recording> {
    return unsupported("no recordings here");
  });
  graphs.has_run({4});
  graphs.wait();
  EXPECT_EQ(graphs.find({4}), nullptr);
  graphs.has_run({4});  // not tried again
  EXPECT_EQ(graphs.recorded(), 0);
}

TEST(StepGraphs, ReplaysReadMemoryAnew) {
  auto gpu = create_cuda_device(0);
  if (!gpu.ok()) GTEST_SKIP() << "not run: " << gpu.status().message();
  Device& device = **gpu;
  const auto stream = device.create_stream();
  const Buffer from = std::move(device.allocate(4).value());
  const Buffer to = std::move(device.allocate(4).value());
  StepGraphs graphs({8}, [&](RecordedSize) -> Result<StepGraphs::Recording> {
    const auto recorder = device.create_stream();
    StepGraphs::Recording recording;
    HR_RETURN_IF_ERROR(recorder->begin_capture());
    recorder->copy(to.data(), from.data(), 4);
    HR_ASSIGN_OR_RETURN(recording.forward, recorder->end_capture());
    return recording;
  });
  graphs.has_run({8});
  graphs.wait();
  const StepGraphs::Recording* recording = graphs.find({8});
  ASSERT_NE(recording, nullptr);
  for (int value = 0; value < 5; ++value) {
    stream->copy_in(from.data(), reinterpret_cast<const std::byte*>(&value), 4);
    stream->launch(*recording->forward);
    int seen = -1;
    stream->copy_out(reinterpret_cast<std::byte*>(&seen), to.data(), 4);
    ASSERT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(seen, value);
  }
}

}  // namespace
}  // namespace headrace::step_graphs_test
