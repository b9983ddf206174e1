#include "engine/step_graphs.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace {
namespace {

TEST(StepGraphs, PadsLittleToFewSizes) {
  std::set<int32_t> sizes;
  for (int32_t rows = 1; rows <= 256; ++rows) {
    const int32_t padded = StepGraphs::padded_rows(rows, 256);
    EXPECT_GE(padded, rows);
    EXPECT_LE(padded, rows + (rows <= 64 ? 7 : 15));
    EXPECT_EQ(StepGraphs::padded_rows(padded, 256), padded);
    sizes.insert(padded);
  }
  EXPECT_LE(sizes.size(), 24u);
  EXPECT_EQ(StepGraphs::padded_rows(257, 256), 0);
  EXPECT_EQ(StepGraphs::padded_rows(5, 6), 0);  // no room for the padding
}

TEST(StepGraphs, AnErrorOfTheRecordingIsTold) {
  const auto cpu = create_cpu_device(1);
  const auto stream = cpu->create_stream();
  StepGraphs graphs;
  int runs = 0;
  EXPECT_TRUE(graphs.run(*stream, {.rows = 4}, StepStage::kForward, [&] { ++runs; }).ok());
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(graphs.run(*stream, {.rows = 4}, StepStage::kForward, [&] { ++runs; }).ok());
  EXPECT_EQ(runs, 2);  // the work was done all the same
}

TEST(StepGraphs, ReplaysReadMemoryAnew) {
  auto gpu = create_cuda_device(0);
  if (!gpu.ok()) GTEST_SKIP() << "not run: " << gpu.status().message();
  Device& device = **gpu;
  const auto stream = device.create_stream();
  const Buffer from = std::move(device.allocate(4).value());
  const Buffer to = std::move(device.allocate(4).value());
  StepGraphs graphs;
  int runs = 0;
  for (int value = 0; value < 5; ++value) {
    stream->copy_in(from.data(), reinterpret_cast<const std::byte*>(&value), 4);
    const auto body = [&] {
      ++runs;
      stream->copy(to.data(), from.data(), 4);
    };
    ASSERT_TRUE(graphs.run(*stream, {.rows = 8}, StepStage::kSample, body).ok());
    int seen = -1;
    stream->copy_out(reinterpret_cast<std::byte*>(&seen), to.data(), 4);
    ASSERT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(seen, value);
  }
  EXPECT_EQ(runs, 2);  // as it is, then recorded
}

}  // namespace
}  // namespace headrace
