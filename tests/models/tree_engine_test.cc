// Trees of proposals in the whole engine, over tiny models of every kind of attention: answers have
// the bits that they have without, while what nothing may read of keys and values is NaN.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "../golden/equal_bits.h"
#include "draft_fixture.h"
#include "sched/draft_source.h"

namespace headrace::tree_engine_test {
namespace {

// Knows the answers: trees in which every second branch begins with what comes next, somewhere, and
// the others are wrong.
class AnswerTrees final : public DraftSource {
 public:
  void learn(const std::vector<TokenId>& prompt, const std::vector<TokenId>& answer) {
    answers_[prompt] = answer;
  }
  void propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) override {
    const std::vector<TokenId>& answer = answers_.at(sequence.request->prompt);
    std::vector<bool> right;  // [proposed] all on its path are
    while (proposed.size() < bounds.tokens && rng_.below(16) != 0) {
      const auto parent = static_cast<int32_t>(rng_.between(-1, proposed.size() - 1));
      const int32_t depth = parent < 0 ? 0 : proposed.depth(parent) + 1;
      if (depth == bounds.depth || proposed.child_count(parent) == kWidth) continue;
      const bool goes_on = parent < 0 || right[static_cast<size_t>(parent)];
      const bool hit = goes_on && rng_.below(2) == 0;
      const size_t place = sequence.output.size() + static_cast<size_t>(depth);
      const auto token =
          hit && place < answer.size() ? answer[place] : static_cast<TokenId>(rng_.below(kVocab));
      if (proposed.child(parent, token) != TokenTree::kBeforeAll) continue;
      proposed.tokens.push_back(token);
      proposed.parents.push_back(parent);
      right.push_back(goes_on && place < answer.size() && answer[place] == token);
    }
  }

  static constexpr int32_t kWidth = 3;

 private:
  std::map<std::vector<TokenId>, std::vector<TokenId>> answers_;
  Rng rng_{17};
};

// Greedy and drawn, whose prompts begin alike, behind more than a page.
std::vector<TestRequest> requests_of_trees() {
  std::vector<TestRequest> requests;
  Rng rng(5);
  const std::vector<TokenId> shared = random_tokens(rng, 20);
  for (const int32_t length : {1, 9, 14, 25, 31}) {
    SamplingParams sampling{.temperature = 0, .max_tokens = 24, .ignore_eos = true};
    sampling.logprobs = 2;
    if (requests.size() % 2 == 1) {
      sampling.temperature = 0.9f;
      sampling.seed = requests.size();
    }
    std::vector<TokenId> prompt = random_tokens(rng, length);
    if (length > 9) prompt.insert(prompt.begin(), shared.begin(), shared.begin() + 20 - length / 4);
    prompt.resize(std::min<size_t>(prompt.size(), kLength - 26));
    requests.push_back({.prompt = std::move(prompt), .sampling = sampling});
  }
  return requests;
}

bool same_tokens_and_bits(const Outcome& a, const Outcome& b) {
  return a.tokens == b.tokens &&
         std::equal(a.logprobs.begin(), a.logprobs.end(), b.logprobs.begin(), b.logprobs.end(),
                    [](const TokenLogprobs& x, const TokenLogprobs& y) {
                      return x.token == y.token && x.top == y.top &&
                             std::bit_cast<uint32_t>(x.logprob) ==
                                 std::bit_cast<uint32_t>(y.logprob);
                    });
}

// Of models, those that keep states, and those whose tokens share keys, get none.
class TreeEngineBits : public ::testing::TestWithParam<EqualBits> {};

TEST_P(TreeEngineBits, AnswersAreThoseWithoutTrees) {
  std::optional<CpuWithoutAmx> without_amx;
  if (!GetParam().may_use_amx) without_amx.emplace();
  uint64_t verifications = 0, accepted = 0, proposed = 0, preemptions = 0;
  size_t models = 0;
  for (const std::string& path : model_paths()) {
    ++models;
    for (const std::optional<KvFormat> kept :
         {std::optional<KvFormat>(), {KvFormat::kInt8}, {KvFormat::kInt4}}) {
      if (kept.has_value() && models % 3 != (kept == KvFormat::kInt8 ? 0 : 1)) continue;
      SCOPED_TRACE(path + ", " + std::string(name_of(kKvFormats, kept)));
      StackOptions options = options_of(path);
      options.device.batch_invariant = GetParam().batch_invariant;
      options.kv_formats.both = kept;
      auto plain = ModelUnderTest::load(options);
      ASSERT_TRUE(plain.ok()) << plain.status().message();
      const std::vector<TestRequest> all = requests_of_trees();
      const auto source = std::make_shared<AnswerTrees>();
      std::vector<Outcome> expected;
      for (const TestRequest& request : all) {
        expected.push_back(plain->answer(request).value());
        source->learn(request.prompt, expected.back().tokens);
      }
      if (plain->stack().engine().options().scheduler.state_checkpoints) break;
      if (shares_keys(plain->stack().config())) break;
      const StackInfo& info = plain->stack().info();
      const auto groups =
          static_cast<int64_t>(plain->stack().engine().options().scheduler.groups.size());
      options.memory.kv_cache_memory_bytes = 9 * groups * (info.kv_bytes / info.block_count);
      options.batch.max_num_batched_tokens = 96;
      options.runner.poison_kv = true;
      options.engine.scheduler.proposals = {.tokens_max = 6,
                                            .tree_width = AnswerTrees::kWidth,
                                            .tree_tokens = 20,
                                            .whatever_they_cost = true,
                                            .source = source};
      auto trees = ModelUnderTest::load(options);
      ASSERT_TRUE(trees.ok()) << trees.status().message();
      for (int round = 0; round < 2; ++round) {  // the second finds prefixes
        const auto answers = trees->answer(all);
        ASSERT_TRUE(answers.ok()) << answers.status().message();
        for (size_t i = 0; i < all.size(); ++i) {
          EXPECT_TRUE(same_tokens_and_bits((*answers)[i], expected[i])) << "request " << i;
        }
      }
      const SchedulerStats stats = trees->stack().engine().stats().scheduler;
      verifications += stats.proposals.verifications;
      accepted += stats.proposals.accepted;
      proposed += stats.proposals.proposed;
      preemptions += stats.preemptions;
    }
  }
  std::printf("%lu tokens proposed in %lu trees, %lu accepted, %lu preemptions\n", proposed,
              verifications, accepted, preemptions);
  EXPECT_GT(proposed, 4 * verifications);
  EXPECT_GT(accepted, verifications / 2);
  EXPECT_GT(preemptions, 100u);
}

// The prompt's last page is shared at first and copied where a choice goes on in it.
TEST(TreeEngine, ChoicesAndFoundPrefixes) {
  StackOptions options = options_of(named("gemma3"));
  auto plain = ModelUnderTest::load(options);
  const auto source = std::make_shared<AnswerTrees>();
  options.engine.scheduler.proposals = {.tokens_max = 6,
                                        .tree_width = AnswerTrees::kWidth,
                                        .tree_tokens = 20,
                                        .whatever_they_cost = true,
                                        .source = source};
  options.runner.poison_kv = true;
  auto trees = ModelUnderTest::load(options);
  ASSERT_TRUE(plain.ok() && trees.ok());
  Rng rng(4);
  std::vector<TokenId> prompt = random_tokens(rng, 37);
  for (int again = 0; again < 3; ++again, prompt.push_back(9)) {
    const auto expected = ChoicesWatch::ask(plain->stack().engine(), prompt);
    source->learn(prompt, expected.at(1));  // wrong for the other two
    EXPECT_EQ(ChoicesWatch::ask(trees->stack().engine(), prompt), expected) << again;
  }
  const SchedulerStats stats = trees->stack().engine().stats().scheduler;
  EXPECT_GT(stats.proposals.accepted, 10u);
  EXPECT_GT(stats.prefix_cache_hits, 0u);
}

// Each moves its own part of what is accepted.
TEST(TreeEngine, RanksAnswerAsOne) {
  StackOptions options = options_of(named("llama"));
  auto plain = ModelUnderTest::load(options);
  const auto source = std::make_shared<AnswerTrees>();
  options.engine.scheduler.proposals = {.tokens_max = 6,
                                        .tree_width = AnswerTrees::kWidth,
                                        .tree_tokens = 20,
                                        .whatever_they_cost = true,
                                        .source = source};
  options.device.tensor_parallel_size = 2;
  options.runner.poison_kv = true;
  auto ranks = ModelUnderTest::load(options);
  ASSERT_TRUE(plain.ok() && ranks.ok()) << ranks.status().message();
  for (const TestRequest& request : requests_of_trees()) {
    const Outcome expected = plain->answer(request).value();
    source->learn(request.prompt, expected.tokens);
    EXPECT_TRUE(same_tokens_and_bits(ranks->answer(request).value(), expected));
  }
  EXPECT_GT(ranks->stack().engine().stats().scheduler.proposals.accepted, 20u);
}

TEST(TreeEngine, WhatCannotBeIsRefusedByName) {
  StackOptions options = options_of(named("llama"));
  options.engine.scheduler.proposals = {.method = ProposalMethod::kNgram, .tree_width = 2};
  EXPECT_TRUE(ModelUnderTest::load(options).ok());
  const auto refusal = [&] {
    return std::string(ModelUnderTest::load(options).status().message());
  };
  options.engine.scheduler.proposals.method = ProposalMethod::kNone;
  EXPECT_NE(refusal().find("nothing proposes"), std::string::npos);
  options.engine.scheduler.proposals.method = ProposalMethod::kNgram;
  StackOptions sharing = options_of(named("deepseek4"));
  sharing.engine.scheduler.proposals = options.engine.scheduler.proposals;
  EXPECT_NE(ModelUnderTest::load(sharing).status().message().find(
                "--spec-tree-width: its tokens share keys"),
            std::string::npos);
  options.device.choice = DeviceChoice::kGpu;
  EXPECT_NE(refusal().find("--spec-tree-width: attention on a GPU takes no trees"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(EqualBits, TreeEngineBits, ::testing::ValuesIn(kEqualBits),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace headrace::tree_engine_test
