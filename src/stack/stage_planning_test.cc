#include "stack/stage_planning.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace headrace {
namespace {

StackOptions staged() {
  StackOptions options{.model = "x.gguf", .device = {.choice = DeviceChoice::kCpu}};
  options.device.pipeline_parallel_size = 3;
  return options;
}

TEST(StagePlanning, WhatDoesNotGoWithStagesIsRefusedByName) {
  const auto refusal = [](const std::function<void(StackOptions&)>& change) {
    StackOptions options = staged();
    change(options);
    const Status status = check_stage_options(options);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal([](auto& options) { options.device.tensor_parallel_size = 2; }),
            "--tensor-parallel-size does not go with --pipeline-parallel-size 3: leave one of them "
            "out");
  EXPECT_TRUE(refusal([](auto& options) {
                options.draft_model = "y.gguf";
              }).starts_with("--model-draft does not go"));
  EXPECT_TRUE(refusal([](auto& options) {
                options.load.packed_cache = PackedCacheUse::kOn;
              }).starts_with("--packed-cache on does not go"));
  EXPECT_TRUE(refusal([](auto& options) {
                options.device.choice = DeviceChoice::kGpu;
              }).starts_with("a GPU does not go"));
  StackOptions options = staged();
  EXPECT_TRUE(check_stage_options(options).ok());
}

TEST(StagePlanning, NothingIsProposed) {
  StackOptions options = staged();
  options.engine.scheduler.proposals.method = ProposalMethod::kNgram;
  EXPECT_TRUE(check_stage_options(options).ok());
  EXPECT_EQ(options.engine.scheduler.proposals.method, ProposalMethod::kNone);
}

TEST(StagePlanning, StagesHaveNeighbouringLayers) {
  int32_t next = 0;
  for (int32_t stage = 0; stage < 3; ++stage) {
    const LayerRange own = layers_of_stage(32, stage, 3);
    EXPECT_EQ(own.first, next);
    EXPECT_GE(own.last - own.first, 10);
    next = own.last;
  }
  EXPECT_EQ(next, 32);
}

// Three layers of states before each that attends.
TEST(StagePlanning, AStageThatKeepsNothingIsRefused) {
  ModelSpec model{.layer_count = 8};
  for (int32_t layer = 0; layer < 8; ++layer) {
    const bool attends = layer % 4 == 3;
    model.kv.push_back(attends ? LayerKv{.kv_heads = 1, .k_dim = 8, .v_dim = 8} : LayerKv{});
    model.state_bytes.push_back(attends ? 0 : 64);
  }
  EXPECT_TRUE(check_stages(model, 2).ok());
  EXPECT_EQ(check_stages(model, 4).message(),
            "--pipeline-parallel-size 4: of 8 layers, stage 0 would have none that keeps keys and "
            "values: lower it");
  EXPECT_FALSE(check_stages(model, 9).ok());
}

}  // namespace
}  // namespace headrace
