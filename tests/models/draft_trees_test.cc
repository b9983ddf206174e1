// Trees that draft models and heads propose, in the whole engine, over tiny models: answers have
// the bits that they have without, while what nothing may read of keys and values is NaN, and what
// the draft has computed along a branch is what it would have computed along a chain.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "draft_fixture.h"

namespace headrace::draft_trees_test {
namespace {

constexpr int32_t kTreeTokens = 20;

// Steps that leave nobody without proposals, whatever comes when.
StackOptions with_room(const std::string& model) {
  StackOptions options = options_of(model);
  options.batch.max_num_batched_tokens = 256;
  return options;
}

// As many as may be, of any form.
StackOptions in_trees(StackOptions options, int32_t tokens = kTreeTokens) {
  options.engine.scheduler.proposals.tree_width = 3;
  options.engine.scheduler.proposals.tree_tokens = tokens;
  options.runner.poison_kv = true;
  return options;
}

// Three first tokens; behind the first what is likeliest four deep, and some beside that.
StackOptions in_one_form(StackOptions options) {
  options = in_trees(std::move(options));
  ProposalOptions& proposals = options.engine.scheduler.proposals;
  proposals.tree = {{0, 1, 2, 0, 1, 0, 0, 0, 0, 1, 0}, {-1, -1, -1, 0, 0, 1, 3, 5, 6, 6, 4}};
  proposals.tokens_max = kTokens;
  proposals.tree_tokens = proposals.tree.size();
  return options;
}

SchedulerStats expect_alike(const StackOptions& options, const std::vector<TestRequest>& all,
                            const std::vector<Outcome>& expected) {
  auto model = ModelUnderTest::load(options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  for (int round = 0; round < 2; ++round) {  // the second finds prefixes
    const auto got = model->answer(all);
    EXPECT_TRUE(got.ok()) << got.status().message();
    if (!got.ok()) return {};
    for (size_t i = 0; i < all.size(); ++i) expect_same((*got)[i], expected[i], i);
  }
  return model->stack().engine().stats().scheduler;
}

double accepted_share(const ProposalStats& stats) {
  return static_cast<double>(stats.accepted) / static_cast<double>(stats.verifications);
}

// Its likeliest branch is right, wherever its keys lie: what it computed of the branch that was
// taken is moved to where a chain has it. So no proposal of its own ever fails.
TEST(DraftTrees, AModelThatIsItsOwnDraftIsRightAlongEveryBranch) {
  uint64_t preemptions = 0;
  size_t drafting = 0;
  for (const std::string& path : model_paths()) {
    if (path.ends_with(".gguf")) continue;  // of each architecture one
    SCOPED_TRACE(path);
    const StackOptions options = with_draft_of(with_room(path), path);
    auto chain = ModelUnderTest::load(options);
    if (!chain.ok()) continue;
    ++drafting;
    auto plain = ModelUnderTest::load(with_room(path));
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    const std::vector<TestRequest> all = requests();
    const std::vector<Outcome> expected = plain->answer(all).value();
    ASSERT_TRUE(chain->answer(all).ok());
    ASSERT_TRUE(chain->answer(all).ok());
    const ProposalStats of_chain = chain->stack().engine().stats().scheduler.proposals;
    const SchedulerStats stats = expect_alike(in_one_form(options), all, expected);
    EXPECT_EQ(stats.proposals.verifications, of_chain.verifications);
    EXPECT_EQ(stats.proposals.accepted, of_chain.accepted);
    EXPECT_GT(stats.proposals.proposed, of_chain.proposed * 3 / 2);
    if (drafting % 3 != 0) continue;
    const SchedulerStats any = expect_alike(in_trees(options), all, expected);
    EXPECT_GT(accepted_share(any.proposals), 1.5);
    const SchedulerStats narrow =
        expect_alike(in_few_pages(in_trees(options), *chain, 2), all, expected);
    EXPECT_GT(narrow.proposals.accepted, 0u);
    preemptions += narrow.preemptions;
  }
  EXPECT_GE(drafting, 25u);
  EXPECT_GT(preemptions, 0u);
}

// Others of its size, whose tokens are mostly wrong, so that other branches than the likeliest are
// taken.
TEST(DraftTrees, AWrongDraftChangesNothing) {
  const std::pair<const char*, const char*> pairs[] = {
      {"llama", "qwen2"}, {"gemma3", "llama"}, {"qwen2", "gemma2"}, {"mistral", "phi3"}};
  uint64_t accepted = 0, of_chains = 0;
  for (const auto& [name, draft] : pairs) {
    SCOPED_TRACE(name);
    auto plain = ModelUnderTest::load(with_room(named(name)));
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    const std::vector<TestRequest> all = requests();
    const std::vector<Outcome> expected = plain->answer(all).value();
    const StackOptions options = with_draft_of(with_room(named(name)), named(draft));
    auto chain = ModelUnderTest::load(options);
    ASSERT_TRUE(chain.ok()) << chain.status().message();
    of_chains += expect_alike(options, all, expected).proposals.accepted;
    accepted += expect_alike(in_one_form(options), all, expected).proposals.accepted;
    expect_alike(in_trees(options), all, expected);
    expect_alike(in_few_pages(in_trees(options), *chain, 2), all, expected);
  }
  EXPECT_GT(accepted, of_chains);
}

// On the model that each was made for, and on others.
TEST(DraftTrees, HeadsChangeNoAnswer) {
  const Json made_for = expected_of_heads();
  uint64_t preemptions = 0;
  for (const char* const head : {"eagle", "eagle3", "medusa"}) {
    const std::string own = made_for.find(head)->find("model")->as_string();
    for (const std::string& name : {own, std::string("qwen3"), std::string("gemma3")}) {
      SCOPED_TRACE(head + (" on " + name));
      auto plain = ModelUnderTest::load(with_room(named(name.c_str())));
      ASSERT_TRUE(plain.ok()) << plain.status().message();
      std::vector<TestRequest> all = requests();
      for (const Json& answer : made_for.find(head)->find("answers")->as_array()) {
        const SamplingParams greedy{.temperature = 0, .max_tokens = 16, .ignore_eos = true};
        all.push_back({.prompt = tokens_of(*answer.find("prompt")), .sampling = greedy});
      }
      const std::vector<Outcome> expected = plain->answer(all).value();
      const StackOptions options = with_head(with_room(named(name.c_str())), head_named(head));
      auto chain = ModelUnderTest::load(options);
      if (!chain.ok()) continue;  // it reads layers that the model has not
      const ProposalStats of_chain = expect_alike(options, all, expected).proposals;
      const ProposalStats any = expect_alike(in_trees(options), all, expected).proposals;
      EXPECT_GT(any.proposed, 5 * any.verifications);
      // The chain is a part of this form, so that no less is right.
      const ProposalStats form = expect_alike(in_one_form(options), all, expected).proposals;
      EXPECT_GT(form.proposed, 5 * form.verifications);
      EXPECT_GE(form.accepted, of_chain.accepted);
      if (name == own) {
        EXPECT_GT(form.accepted, of_chain.accepted + 2);
      }
      const SchedulerStats narrow =
          expect_alike(in_few_pages(in_trees(options), *chain, 2), all, expected);
      preemptions += narrow.preemptions;
    }
  }
  EXPECT_GT(preemptions, 0u);
}

// The prompt's last page is shared at first and copied where a choice goes on in it.
TEST(DraftTrees, ChoicesAndFoundPrefixes) {
  StackOptions options = with_room(named("llama"));
  auto plain = ModelUnderTest::load(options);
  ASSERT_TRUE(plain.ok());
  const StackOptions drafts[] = {with_draft_of(options, named("qwen2")),
                                 with_head(options, head_named("eagle")),
                                 with_head(options, head_named("medusa"))};
  for (const StackOptions& draft : drafts) {
    auto trees = ModelUnderTest::load(in_trees(draft));
    ASSERT_TRUE(trees.ok()) << trees.status().message();
    Rng rng(4);
    std::vector<TokenId> prompt = random_tokens(rng, 37);
    for (int again = 0; again < 3; ++again, prompt.push_back(9)) {
      EXPECT_EQ(ChoicesWatch::ask(trees->stack().engine(), prompt),
                ChoicesWatch::ask(plain->stack().engine(), prompt))
          << again;
    }
    const SchedulerStats stats = trees->stack().engine().stats().scheduler;
    EXPECT_GT(stats.proposals.proposed, 300u);
    EXPECT_GT(stats.prefix_cache_hits, 0u);
  }
}

TEST(DraftTrees, WhatCannotBeIsRefusedByName) {
  StackOptions options = in_trees(with_head(with_room(named("llama")), head_named("eagle")));
  const auto refusal = [&] {
    return std::string(ModelUnderTest::load(options).status().message());
  };
  options.engine.scheduler.proposals.synthetic_acceptance = 0.5;
  EXPECT_NE(refusal().find("does not go with synthetic_acceptance_rate"), std::string::npos)
      << refusal();
  options.engine.scheduler.proposals.synthetic_acceptance = -1;
  options.device.choice = DeviceChoice::kGpu;
  EXPECT_NE(refusal().find("--spec-tree-width: attention on a GPU takes no trees"),
            std::string::npos)
      << refusal();
}

}  // namespace
}  // namespace headrace::draft_trees_test
