#include "stack/stage_planning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "base/rng.h"
#include "weights/dummy_weights.h"

namespace headrace::stage_planning_test {
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
  StackOptions options = staged();
  EXPECT_TRUE(check_stage_options(options).ok());
}

TEST(StagePlanning, NothingIsProposed) {
  StackOptions options = staged();
  options.engine.scheduler.proposals.method = ProposalMethod::kNgram;
  EXPECT_TRUE(check_stage_options(options).ok());
  EXPECT_EQ(options.engine.scheduler.proposals.method, ProposalMethod::kNone);
}

ModelSpec of_layers(int32_t count) {
  ModelSpec model{.vocab_size = 100, .hidden_size = 4, .layer_count = count};
  model.kv.assign(static_cast<size_t>(count), {.kv_heads = 1, .k_dim = 8, .v_dim = 8});
  return model;
}

double cost_of(const LayerCosts& costs, LayerRange own) {
  double sum = own.last == std::ssize(costs.layers) ? costs.head : 0;
  for (int32_t layer = own.first; layer < own.last; ++layer) {
    sum += costs.layers[static_cast<size_t>(layer)];
  }
  return sum;
}

// Beside every other way to cut them.
TEST(StagePlanning, TheDearestStageIsAsCheapAsCanBe) {
  Rng rng(3);
  for (int turn = 0; turn < 200; ++turn) {
    const auto count = static_cast<int32_t>(rng.between(3, 12));
    LayerCosts costs{.layers = std::vector<double>(static_cast<size_t>(count)),
                     .head = static_cast<double>(rng.below(20))};
    for (double& cost : costs.layers) cost = static_cast<double>(rng.between(1, 6));
    const auto stages = plan_stages(of_layers(count), costs, 3).value();
    ASSERT_EQ(stages.size(), 3u);
    EXPECT_EQ(stages.front().first, 0);
    EXPECT_EQ(stages.back().last, count);
    double dearest = 0, best = 1e9;
    for (size_t s = 0; s < 3; ++s) {
      EXPECT_LT(stages[s].first, stages[s].last);
      if (s > 0) {
        EXPECT_EQ(stages[s].first, stages[s - 1].last);
      }
      dearest = std::max(dearest, cost_of(costs, stages[s]));
    }
    for (int32_t a = 1; a + 1 < count; ++a) {
      for (int32_t b = a + 1; b < count; ++b) {
        best = std::min(best, std::max({cost_of(costs, {0, a}), cost_of(costs, {a, b}),
                                        cost_of(costs, {b, count})}));
      }
    }
    EXPECT_NEAR(dearest, best, 1e-6) << turn;
  }
}

// 32 layers like Llama 3 8B's: the head is worth two and a half.
TEST(StagePlanning, TheHeadIsCounted) {
  const LayerCosts costs{.layers = std::vector<double>(32, 218e6), .head = 525e6};
  const auto stages = plan_stages(of_layers(32), costs, 2).value();
  EXPECT_EQ(stages[0].last, 17);
  EXPECT_EQ(stages_line(stages), "2 stages, of layers 0 to 16, 17 to 31");
}

TEST(StagePlanning, CostsAreOfTheTensorsOfALayer) {
  std::vector<DummyTensor> tensors = {{.name = "model.layers.1.mlp.experts.0.up", .shape = {4, 8}},
                                      {.name = "blk.0.attn_q.weight", .shape = {4, 4}},
                                      {.name = "h.1.w", .shape = {2}},
                                      {.name = "blk.7.nextn", .shape = {100}},
                                      {.name = "output.weight", .shape = {100, 4}}};
  const auto weights =
      DummyWeightSource::create(std::move(tensors), {.dtype = DType::kF32}).value();
  const LayerCosts costs = layer_costs(*weights, of_layers(2));
  EXPECT_EQ(costs.layers, (std::vector<double>{16, 34}));
  EXPECT_EQ(costs.head, 400);
}

// Three layers of states before each that attends.
TEST(StagePlanning, AStageThatKeepsNothingIsRefused) {
  ModelSpec model{.layer_count = 8};
  for (int32_t layer = 0; layer < 8; ++layer) {
    const bool attends = layer % 4 == 3;
    model.kv.push_back(attends ? LayerKv{.kv_heads = 1, .k_dim = 8, .v_dim = 8} : LayerKv{});
    model.state_bytes.push_back(attends ? 0 : 64);
  }
  const LayerCosts alike{.layers = std::vector<double>(8, 1)};
  EXPECT_TRUE(plan_stages(model, alike, 2).ok());
  EXPECT_EQ(plan_stages(model, alike, 4).status().message(),
            "--pipeline-parallel-size 4: of 8 layers, stage 0 would have none that keeps keys and "
            "values: lower it");
  EXPECT_FALSE(plan_stages(model, alike, 9).ok());
  // As many each as can be, where what is cheapest would leave one without keys.
  const LayerCosts dear_end{.layers = {1, 1, 1, 1, 1, 1, 1, 9}};
  EXPECT_EQ(plan_stages(model, dear_end, 2).value().front().last, 4);
}

}  // namespace
}  // namespace headrace::stage_planning_test
