// Tiny models with draft models and draft heads, in the whole engine: answers have the bits that
// they have without, whatever the draft proposes, a model that is its own draft is always right,
// and heads propose what PyTorch does (make_draft_heads.py).
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "draft_fixture.h"

namespace headrace::draft_engine_test {
namespace {

// Where what nothing may read is NaN, too.
StackOptions in_small_pool(const StackOptions& options, ModelUnderTest& roomy) {
  StackOptions poisoned = in_few_pages(options, roomy, 2);
  poisoned.runner.poison_kv = true;
  return poisoned;
}

SchedulerStats answer_alike(ModelUnderTest& model, const std::vector<TestRequest>& all,
                            const std::vector<Outcome>& expected) {
  const auto got = model.answer(all);
  EXPECT_TRUE(got.ok()) << got.status().message();
  if (got.ok()) {
    for (size_t i = 0; i < all.size(); ++i) expect_same((*got)[i], expected[i], i);
  }
  return model.stack().engine().stats().scheduler;
}

TEST(DraftEngine, AModelThatIsItsOwnDraftIsAlwaysRight) {
  int drafting = 0;
  uint64_t preemptions = 0;
  for (const std::string& path : model_paths()) {
    SCOPED_TRACE(path);
    auto plain = ModelUnderTest::load(options_of(path));
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    const std::vector<TestRequest> all = requests();
    const std::vector<Outcome> expected = plain->answer(all).value();
    const StackOptions options = with_draft_of(options_of(path), path);
    auto roomy = ModelUnderTest::load(options);
    if (!roomy.ok()) {
      const std::string why(roomy.status().message());
      const bool is_known = why.find("keep states of fixed size: --model-draft") != why.npos ||
                            why.find("leave rows to later ones") != why.npos;
      EXPECT_TRUE(is_known) << why;
      continue;
    }
    ++drafting;
    const SchedulerStats stats = answer_alike(*roomy, all, expected);
    EXPECT_EQ(stats.proposals.accepted, stats.proposals.proposed);
    // 19 tokens: one of the prompt, and three times five and one of three.
    EXPECT_GE(stats.proposals.proposed, 4u * 14);
    // Behind an end of the text, which is ignored here, nothing is proposed.
    EXPECT_LE(stats.proposals.verifications, 2 * stats.proposals.proposed / 5);
    auto narrow = ModelUnderTest::load(in_small_pool(options, *roomy));
    ASSERT_TRUE(narrow.ok()) << narrow.status().message();
    const SchedulerStats in_steps = answer_alike(*narrow, all, expected);
    EXPECT_EQ(in_steps.proposals.accepted, in_steps.proposals.proposed);
    EXPECT_GT(in_steps.proposals.proposed, 0u);
    preemptions += in_steps.preemptions;
  }
  EXPECT_GE(drafting, 25);
  EXPECT_GT(preemptions, 0u);
}

// Others of its size, whose tokens are mostly wrong.
TEST(DraftEngine, AWrongDraftChangesNothing) {
  const std::pair<const char*, const char*> pairs[] = {
      {"llama", "qwen2"}, {"gemma3", "llama"}, {"qwen2", "gemma2"}, {"mistral", "phi3"}};
  uint64_t proposed = 0, accepted = 0;
  for (const auto& [model, draft] : pairs) {
    SCOPED_TRACE(model);
    auto plain = ModelUnderTest::load(options_of(named(model)));
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    const std::vector<TestRequest> all = requests();
    const std::vector<Outcome> expected = plain->answer(all).value();
    const StackOptions options = with_draft_of(options_of(named(model)), named(draft));
    auto roomy = ModelUnderTest::load(options);
    ASSERT_TRUE(roomy.ok()) << roomy.status().message();
    answer_alike(*roomy, all, expected);
    auto narrow = ModelUnderTest::load(in_small_pool(options, *roomy));
    ASSERT_TRUE(narrow.ok()) << narrow.status().message();
    const SchedulerStats stats = answer_alike(*narrow, all, expected);
    proposed += stats.proposals.proposed;
    accepted += stats.proposals.accepted;
  }
  EXPECT_GT(proposed, 200u);
  EXPECT_LT(accepted, proposed / 2);
}

// Of its tokens the first half alone, so that what it proposes is wrong wherever the answer has one
// of the others.
TEST(DraftEngine, ADraftMayProposeOfItsFirstTokensOnly) {
  StackOptions options = options_of(named("llama"));
  auto plain = ModelUnderTest::load(options);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  const std::vector<TestRequest> all = requests();
  const std::vector<Outcome> expected = plain->answer(all).value();
  options = with_draft_of(options, named("llama"));
  options.engine.scheduler.proposals.draft_vocab = kVocab / 2;
  auto cut = ModelUnderTest::load(options);
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  const SchedulerStats stats = answer_alike(*cut, all, expected);
  EXPECT_GT(stats.proposals.accepted, 0u);
  EXPECT_LT(stats.proposals.accepted, stats.proposals.proposed);
}

// The prompt's last page is shared at first and copied where a choice goes on in it; found again in
// the prefix cache, it holds what the draft has computed of it.
TEST(DraftEngine, ChoicesAndFoundPrefixesKeepWhatTheDraftComputed) {
  StackOptions options = options_of(named("llama"));
  auto plain = ModelUnderTest::load(options);
  options = with_draft_of(options, named("llama"));
  options.runner.poison_kv = true;
  auto drafting = ModelUnderTest::load(options);
  ASSERT_TRUE(plain.ok() && drafting.ok());
  Rng rng(4);
  const std::vector<TokenId> prompt = random_tokens(rng, 37);
  for (int again = 0; again < 3; ++again) {
    std::vector<TokenId> longer = prompt;
    longer.resize(prompt.size() + static_cast<size_t>(again), 9);
    EXPECT_EQ(ChoicesWatch::ask(drafting->stack().engine(), longer),
              ChoicesWatch::ask(plain->stack().engine(), longer))
        << again;
  }
  const SchedulerStats stats = drafting->stack().engine().stats().scheduler;
  EXPECT_EQ(stats.proposals.accepted, stats.proposals.proposed);
  EXPECT_GT(stats.proposals.proposed, 9u * 12);
  EXPECT_GT(stats.prefix_cache_hits, 0u);
}

TEST(DraftEngine, WhatDoesNotFitIsNamed) {
  const auto refusal = [](StackOptions options) {
    return std::string(ModelUnderTest::load(options).status().message());
  };
  const std::string llama = named("llama");
  EXPECT_NE(refusal(with_draft_of(options_of(llama), "none.gguf")).find("none.gguf"),
            std::string::npos);
  StackOptions ranks = with_draft_of(options_of(llama), llama);
  ranks.device.tensor_parallel_size = 2;
  EXPECT_NE(refusal(ranks).find("does not go with --tensor-parallel-size"), std::string::npos);
  StackOptions tiers = with_draft_of(options_of(llama), llama);
  tiers.tiers.host_gib = 0.001;
  EXPECT_NE(refusal(tiers).find("does not go with --kv-offloading-size"), std::string::npos);
  StackOptions contiguous = with_draft_of(options_of(llama), llama);
  contiguous.runner.kv_memory = KvMemoryKind::kContiguous;
  EXPECT_NE(refusal(contiguous).find("--kv-memory paged"), std::string::npos);
  StackOptions both = with_draft_of(options_of(llama), llama);
  both.engine.scheduler.proposals.method = ProposalMethod::kNgram;
  EXPECT_NE(refusal(both).find("choose one"), std::string::npos);
  EXPECT_NE(refusal(with_draft_of(options_of(llama), "")).find("--model-draft FILE"),
            std::string::npos);
  EXPECT_NE(refusal(with_draft_of(options_of(llama), named("lfm2"))).find("its layers keep states"),
            std::string::npos);
}

// ---- heads ----

TEST(DraftHeads, ProposeWhatPyTorchDoes) {
  for (const char* const head : {"eagle", "eagle3", "medusa"}) expect_pytorchs(head, options_of);
}

// On models that they were not made for, and so mostly wrong.
TEST(DraftHeads, ChangeNoAnswer) {
  int heads = 0, refused = 0;
  uint64_t proposed = 0, preemptions = 0;
  for (const char* const name : {"llama", "smollm3", "gemma3", "qwen3", "olmo3", "deepseek3",
                                 "gpt-oss", "cohere2", "falcon", "lfm2", "phi3"}) {
    SCOPED_TRACE(name);
    auto plain = ModelUnderTest::load(options_of(named(name)));
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    const std::vector<TestRequest> all = requests();
    const std::vector<Outcome> expected = plain->answer(all).value();
    for (const char* const head : {"eagle", "eagle3", "medusa"}) {
      SCOPED_TRACE(head);
      const StackOptions options = with_head(options_of(named(name)), head_named(head));
      auto roomy = ModelUnderTest::load(options);
      if (!roomy.ok()) {
        ++refused;
        continue;
      }
      ++heads;
      answer_alike(*roomy, all, expected);
      auto narrow = ModelUnderTest::load(in_small_pool(options, *roomy));
      ASSERT_TRUE(narrow.ok()) << narrow.status().message();
      const SchedulerStats stats = answer_alike(*narrow, all, expected);
      proposed += stats.proposals.proposed;
      preemptions += stats.preemptions;
    }
  }
  // falcon's rows are wider, lfm2 keeps states, and six models have not the layers that an EAGLE-3
  // head reads.
  EXPECT_EQ(refused, 3 + 3 + 6);
  EXPECT_EQ(heads, 11 * 3 - refused);
  EXPECT_GT(proposed, 1000u);
  EXPECT_GT(preemptions, 0u);
}

TEST(DraftHeads, ChoicesAndFoundPrefixesKeepWhatTheHeadReads) {
  for (const char* const head : {"eagle", "medusa"}) {
    StackOptions options = options_of(named("llama"));
    auto plain = ModelUnderTest::load(options);
    options = with_head(options, head_named(head));
    options.runner.poison_kv = true;
    auto drafting = ModelUnderTest::load(options);
    ASSERT_TRUE(plain.ok() && drafting.ok()) << drafting.status().message();
    Rng rng(4);
    const std::vector<TokenId> prompt = random_tokens(rng, 32);  // whole pages
    for (int again = 0; again < 3; ++again) {
      std::vector<TokenId> longer = prompt;
      longer.resize(prompt.size() + static_cast<size_t>(again), 9);
      EXPECT_EQ(ChoicesWatch::ask(drafting->stack().engine(), longer),
                ChoicesWatch::ask(plain->stack().engine(), longer))
          << again;
    }
    const SchedulerStats stats = drafting->stack().engine().stats().scheduler;
    EXPECT_GT(stats.proposals.proposed, 100u);
    EXPECT_GT(stats.prefix_cache_hits, 0u);
  }
}

TEST(DraftHeads, OneThatIsMostlyWrongIsToldOf) {
  const Json expected = expected_of_heads();
  for (const auto& [name, told] : {std::pair("smollm3", true), {"llama", false}}) {
    testing::internal::CaptureStderr();
    auto model = ModelUnderTest::load(with_head(options_of(named(name)), head_named("eagle")));
    ASSERT_TRUE(model.ok()) << model.status().message();
    for (const Json& answer : expected.find("eagle")->find("answers")->as_array()) {
      const SamplingParams greedy{.temperature = 0, .max_tokens = 40, .ignore_eos = true};
      EXPECT_TRUE(
          model
              ->answer(TestRequest{.prompt = tokens_of(*answer.find("prompt")), .sampling = greedy})
              .ok());
    }
    const std::string log = testing::internal::GetCapturedStderr();
    const bool found = log.find("proposed tokens were right, less than 5 %") != std::string::npos;
    EXPECT_EQ(found, told) << name << ": " << log;
  }
}

TEST(DraftHeads, WhatDoesNotFitIsNamed) {
  const auto refusal = [](const StackOptions& options) {
    return std::string(ModelUnderTest::load(options).status().message());
  };
  const auto of = [&](const char* model, const char* head) {
    return refusal(with_head(options_of(named(model)), head_named(head)));
  };
  EXPECT_NE(of("falcon", "eagle")
                .find("takes rows of 64 numbers, and the model that it is to "
                      "propose for gives 128"),
            std::string::npos)
      << of("falcon", "eagle");
  EXPECT_NE(of("llama", "eagle3").find("into layer -1"), std::string::npos)
      << of("llama", "eagle3");
  EXPECT_NE(of("falcon", "medusa").find("shape"), std::string::npos) << of("falcon", "medusa");
  StackOptions other = with_head(options_of(named("llama")), head_named("eagle"));
  other.engine.scheduler.proposals.method = ProposalMethod::kEagle3;
  EXPECT_NE(refusal(other).find("are of method eagle, not eagle3"), std::string::npos);
  other.engine.scheduler.proposals.method = ProposalMethod::kMedusa;
  other.draft_model = named("llama");
  EXPECT_NE(refusal(other).find("are of method draft_model, not medusa"), std::string::npos);
  StackOptions ranks = with_head(options_of(named("llama")), head_named("eagle"));
  ranks.device.tensor_parallel_size = 2;
  EXPECT_NE(refusal(ranks).find("does not go with --tensor-parallel-size"), std::string::npos);
  StackOptions four_bits = with_head(options_of(named("llama")), head_named("eagle"));
  four_bits.kv_formats.both = KvFormat::kInt4;
  EXPECT_NE(refusal(four_bits).find("whose features 4 bits do not hold"), std::string::npos)
      << refusal(four_bits);
}

}  // namespace
}  // namespace headrace::draft_engine_test
