#include "engine/runner_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "models/null_model.h"

namespace headrace::runner_shape_test {
namespace {

class RunnerShapeTest : public ::testing::TestWithParam<int32_t> {  // the window of most layers
 protected:
  RunnerShape shape(const ModelRunnerOptions& options) const {
    return RunnerShape::plan(*device_, model_, plan_kv(model_.spec(), {KvFormat::kBF16}, 16),
                             options);
  }

  const std::unique_ptr<Device> device_ = create_null_device({});
  const NullModel model_{{.architecture = "null",
                          .vocab_size = 5001,
                          .hidden_size = 96,
                          .layer_count = 4,
                          .query_heads = 8,
                          .context_length = 4096,
                          .kv = {{.kv_heads = 2, .k_dim = 64, .v_dim = 64, .window = 0},
                                 {.kv_heads = 2, .k_dim = 64, .v_dim = 64, .window = GetParam()},
                                 {.kv_heads = 2, .k_dim = 64, .v_dim = 64, .window = GetParam()},
                                 {.kv_heads = 2, .k_dim = 64, .v_dim = 64, .window = GetParam()}}}};
};

// Steps of every size take their places in an arena of the size that was counted.
TEST_P(RunnerShapeTest, AnArenaHoldsEveryStep) {
  for (const int32_t sequences : {1, 7, 64, 300}) {
    const RunnerShape shape = this->shape(
        {.max_num_seqs = sequences, .max_num_batched_tokens = 1024, .max_model_len = 4096});
    const StepCounts& most = shape.step;
    for (size_t tokens = 1; tokens <= most.tokens; tokens = tokens * 3 / 2 + 1) {
      const size_t slots = std::min(tokens, static_cast<size_t>(sequences));
      ArenaPlaces places;
      StepParts::place(places, shape.attention,
                       {.tokens = tokens,
                        .logit_rows = tokens + slots,
                        .kept_rows = slots,
                        .biases = most.biases,
                        .entries = most.entries,
                        .marks = most.marks});
      EXPECT_LE(places.used(), shape.arena_bytes) << tokens << " tokens, " << sequences;
    }
  }
}

TEST_P(RunnerShapeTest, NothingIsCountedForRecordingsThatAreNotMade) {
  ModelRunnerOptions options{
      .max_num_seqs = 8, .max_num_batched_tokens = 64, .max_model_len = 256, .graphs = false};
  const RunnerShape without = shape(options);
  options.graphs = true;
  const RunnerShape with = shape(options);
  EXPECT_EQ(without.graph_rows_max, 0);
  EXPECT_EQ(with.graph_rows_max, 8);
  EXPECT_GT(with.graph_workspace_bytes, 0);
  EXPECT_EQ(with.device_bytes(), without.device_bytes() + with.graph_workspace_bytes);
}

// A null device that adds up the memory that is allocated on it.
class CountingDevice final : public Device {
 public:
  const DeviceTraits& traits() const override { return device_->traits(); }
  Result<Buffer> allocate(int64_t bytes) override {
    bytes_ += bytes;
    return device_->allocate(bytes);
  }
  Result<Buffer> allocate_host(int64_t bytes) override { return device_->allocate_host(bytes); }
  std::unique_ptr<Stream> create_stream() override { return device_->create_stream(); }
  int64_t free_bytes() const override { return device_->free_bytes(); }
  ThreadPool& pool() override { return device_->pool(); }
  Result<GemmLibrary*> gemm_library() override { return device_->gemm_library(); }
  int64_t bytes() const { return bytes_; }

 private:
  void release(std::byte*, int64_t, MemoryKind) override {}  // buffers are the null device's

  const std::unique_ptr<Device> device_ = create_null_device({});
  int64_t bytes_ = 0;
};

TEST_P(RunnerShapeTest, ARunnerAllocatesWhatWasCounted) {
  const ModelRunnerOptions options{.max_num_seqs = 5,
                                   .max_num_batched_tokens = 64,
                                   .max_model_len = 300,
                                   .block_count = 19,
                                   .graphs = false};
  CountingDevice device;
  const KvPlan kv = plan_kv(model_.spec(), {KvFormat::kBF16}, 16);
  const int64_t counted = model_runner_bytes({&device, &model_}, kv, options);
  const auto runner = create_model_runner(device, model_, kv, options);
  ASSERT_TRUE(runner.ok()) << runner.status().message();
  const int64_t pool = (options.block_count + 1) * kv.page_bytes;
  EXPECT_GE(device.bytes(), pool + counted);
  EXPECT_LT(device.bytes(), pool + counted + ArenaPlaces::kAlignment);  // a gap between results
}

INSTANTIATE_TEST_SUITE_P(Windows, RunnerShapeTest, ::testing::Values(0, 64));

}  // namespace
}  // namespace headrace::runner_shape_test
