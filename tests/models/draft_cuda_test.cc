// Tiny models with draft models and draft heads on a GPU: with --batch-invariant answers have the
// bits that they have without, recorded passes or not, pages in plenty or few; a model that is its
// own draft is always right, and heads propose what PyTorch does.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpu_models_fixture.h"
#include "draft_fixture.h"
#include "tensor/device.h"

namespace headrace::draft_cuda_test {
namespace {

StackOptions on_gpu(const std::string& model) {
  StackOptions options = options_of(model);
  options.device.choice = DeviceChoice::kGpu;
  options.memory.kv_cache_memory_bytes = 64 << 20;
  return options;
}

SchedulerStats answers_with(const StackOptions& options, const std::vector<Outcome>& expected) {
  auto model = ModelUnderTest::load(options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  const auto got = model->answer(requests());
  EXPECT_TRUE(got.ok()) << got.status().message();
  for (size_t i = 0; got.ok() && i < expected.size(); ++i) expect_same((*got)[i], expected[i], i);
  return model->stack().engine().stats().scheduler;
}

// Recorded and not, with much and with little memory, while what nothing may read of the cache is
// NaN.
void expect_unchanged(const StackOptions& plain, const StackOptions& drafting, bool always_right,
                      uint64_t* preemptions) {
  auto model = ModelUnderTest::load(plain);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<Outcome> expected = model->answer(requests()).value();
  for (const bool graphs : {true, false}) {
    StackOptions options = drafting;
    options.runner.graphs = graphs;
    options.runner.poison_kv = true;
    auto roomy = ModelUnderTest::load(options);
    ASSERT_TRUE(roomy.ok()) << roomy.status().message();
    for (const bool narrow : {false, true}) {
      SCOPED_TRACE(std::string(graphs ? "recorded" : "eager") + (narrow ? " narrow" : ""));
      const SchedulerStats stats =
          answers_with(narrow ? in_few_pages(options, *roomy, 3) : options, expected);
      EXPECT_GT(stats.proposals.proposed, 0u);
      if (always_right) {
        EXPECT_EQ(stats.proposals.accepted, stats.proposals.proposed);
      }
      *preemptions += stats.preemptions;
    }
  }
}

TEST(DraftCuda, AModelThatIsItsOwnDraftIsAlwaysRight) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  int drafting = 0;
  uint64_t preemptions = 0;
  for (const char* const name : {"llama", "qwen3", "gemma2", "gpt-oss", "deepseek3", "falcon"}) {
    SCOPED_TRACE(name);
    const StackOptions options = with_draft_of(on_gpu(named(name)), named(name));
    if (const Status status = ModelUnderTest::load(options).status(); !status.ok()) {
      EXPECT_NE(status.message().find("some of its layers have windows"), std::string::npos)
          << status.message();
      continue;
    }
    ++drafting;
    expect_unchanged(on_gpu(named(name)), options, /*always_right=*/true, &preemptions);
  }
  EXPECT_GE(drafting, 4);
  EXPECT_GT(preemptions, 0u);
}

TEST(DraftCuda, AWrongDraftChangesNothing) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  uint64_t preemptions = 0;
  for (const auto& [model, draft] : {std::pair("llama", "qwen2"), {"gemma3", "llama"}}) {
    SCOPED_TRACE(model);
    expect_unchanged(on_gpu(named(model)), with_draft_of(on_gpu(named(model)), named(draft)),
                     /*always_right=*/false, &preemptions);
  }
  EXPECT_GT(preemptions, 0u);
}

TEST(DraftCuda, ADraftMayProposeOfItsFirstTokensOnly) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  StackOptions options = with_draft_of(on_gpu(named("llama")), named("llama"));
  options.engine.scheduler.proposals.draft_vocab = kVocab / 2;
  uint64_t preemptions = 0;
  expect_unchanged(on_gpu(named("llama")), options, /*always_right=*/false, &preemptions);
}

TEST(DraftCuda, HeadsProposeWhatPyTorchDoes) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const char* const head : {"eagle", "eagle3"}) expect_pytorchs(head, on_gpu);
}

TEST(DraftCuda, HeadsChangeNoAnswer) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  int heads = 0;
  uint64_t preemptions = 0;
  for (const char* const name : {"llama", "smollm3", "gemma3", "qwen3", "cohere2"}) {
    for (const char* const head : {"eagle", "eagle3"}) {
      SCOPED_TRACE(std::string(name) + " " + head);
      const StackOptions options = with_head(on_gpu(named(name)), head_named(head));
      if (!ModelUnderTest::load(options).ok()) continue;  // that its layers are too few
      ++heads;
      expect_unchanged(on_gpu(named(name)), options, /*always_right=*/false, &preemptions);
    }
  }
  EXPECT_GE(heads, 6);
  EXPECT_GT(preemptions, 0u);
}

TEST(DraftCuda, WhatAGpuDoesNotTakeIsNamed) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  const auto refusal = [](const StackOptions& options) {
    return std::string(ModelUnderTest::load(options).status().message());
  };
  const StackOptions medusa = with_head(on_gpu(named("llama")), head_named("medusa"));
  EXPECT_NE(refusal(medusa).find("a GPU where it is Medusa heads"), std::string::npos)
      << refusal(medusa);
  EXPECT_NE(refusal(with_draft_of(on_gpu(named("llama")), named("gemma3")))
                .find("some of its layers have windows"),
            std::string::npos);
  StackOptions fp8 = with_head(on_gpu(named("llama")), head_named("eagle"));
  fp8.kv_formats.both = KvFormat::kFp8;
  EXPECT_NE(refusal(fp8).find("whose features have 16 bits"), std::string::npos) << refusal(fp8);
}

}  // namespace
}  // namespace headrace::draft_cuda_test
