#include "sched/mlfq_policy.h"

#include <gtest/gtest.h>

#include <memory>

namespace headrace::mlfq_policy_test {
namespace {

constexpr StepCost kCost = {.base = 0.004, .per_prompt_token = 20e-6};

class MlfqPolicyTest : public testing::Test {
 protected:
  MlfqPolicyTest() { look(); }

  // As a plan does: the policy sees what steps cost, and how many there are.
  void look() {
    const StepView view{.running = running_,
                        .queue = line_,
                        .cost = &kCost,
                        .cached_tokens = cached_,
                        .fits = fits_};
    policy_.shape(view);
  }

  Sequence& arrive(int32_t prompt, int32_t max_tokens = 4096) {
    auto request = std::make_shared<Request>();
    request->prompt.assign(static_cast<size_t>(prompt), 1);
    request->sampling.max_tokens = max_tokens;
    auto& sequence = sequences_.emplace_back(
        std::make_unique<Sequence>(Sequence{.id = SequenceId(sequences_.size() + 1),
                                            .request = request,
                                            .output = {},
                                            .followers = {},
                                            .blocks = SequenceBlocks(groups_),
                                            .path = {},
                                            .state = Waiting{}}));
    policy_.note(SequenceEvent::kArrived, *sequence);
    sequence->rank = policy_.rank(*sequence);
    return *sequence;
  }

  // Answers of `tokens` end, `count` of them.
  void end_answers(int32_t tokens, int count) {
    for (int i = 0; i < count; ++i) {
      Sequence& sequence = arrive(8);
      sequence.output.assign(static_cast<size_t>(tokens), 1);
      policy_.note(SequenceEvent::kFinished, sequence);
      policy_.note(SequenceEvent::kEnded, sequence);
    }
  }

  // It ran in steps of 8 ms until it had so many tokens.
  void run(Sequence& sequence, int32_t tokens) {
    while (static_cast<int32_t>(sequence.output.size()) < tokens) {
      sequence.output.push_back(1);
      policy_.served(sequence, {.output_tokens = 1, .step_seconds = 0.008});
    }
    sequence.rank = policy_.rank(sequence);
  }

  const std::vector<KvGroupSpec> groups_ = {{.block_tokens = 16}};
  const std::function<int32_t(const Sequence&)> cached_ = [](const Sequence&) { return 0; };
  const std::function<bool(const Sequence&)> fits_ = [](const Sequence&) { return true; };
  std::vector<Sequence*> running_;
  WaitingQueue line_;
  MlfqPolicy policy_{SchedulerOptions{.max_model_len = 8192}};
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

// The shortest step takes 4 ms, so the quanta are 4, 8, 16, 32, ... ms.
TEST_F(MlfqPolicyTest, APromptJoinsTheQueueWhoseQuantumCoversIt) {
  EXPECT_EQ(arrive(1).rank.level, 1);     // 4.02 ms
  EXPECT_EQ(arrive(200).rank.level, 1);   // 8 ms
  EXPECT_EQ(arrive(201).rank.level, 2);   // 8.02 ms
  EXPECT_EQ(arrive(1087).rank.level, 3);  // 25.7 ms
  EXPECT_EQ(arrive(4096).rank.level, 5);  // 86 ms
  EXPECT_EQ(arrive(8000).rank.level, 6);  // 164 ms
}

TEST_F(MlfqPolicyTest, AQueueIsLeftWhenItsQuantumIsUsed) {
  Sequence& sequence = arrive(1000);  // 24 ms: queue 3, of 32 ms
  ASSERT_EQ(sequence.rank.level, 3);
  policy_.served(sequence, {.prompt_tokens = 1000, .step_seconds = 0.024});
  EXPECT_EQ(policy_.rank(sequence).level, 3);
  EXPECT_TRUE(policy_.served(sequence, {.output_tokens = 1, .step_seconds = 0.008}));
  EXPECT_EQ(policy_.rank(sequence).level, 4);
  for (int step = 0; step < 7; ++step) {  // 56 of 64 ms
    EXPECT_FALSE(policy_.served(sequence, {.output_tokens = 1, .step_seconds = 0.008}));
  }
  EXPECT_TRUE(policy_.served(sequence, {.output_tokens = 1, .step_seconds = 0.008}));
  EXPECT_EQ(policy_.rank(sequence).level, 5);
}

TEST_F(MlfqPolicyTest, WhereFewAnswersAreLongWhoHasRunLongGivesWay) {
  end_answers(10, 900);
  end_answers(2000, 100);
  Sequence& running = arrive(8);
  run(running, 500);
  const Sequence& waiting = arrive(8);
  EXPECT_TRUE(policy_.preempts(waiting, running, 0));
  EXPECT_FALSE(policy_.preempts(running, waiting, 0)) << "it is of the better queue";
  // 1,300 steps of 8 ms are saved; what is lost delays all that are there.
  running_.assign(50, &running);
  look();
  EXPECT_TRUE(policy_.preempts(waiting, running, 0.009));
  EXPECT_FALSE(policy_.preempts(waiting, running, 0.012));
}

TEST_F(MlfqPolicyTest, WhereAnswersAreAlikeNobodyGivesWay) {
  end_answers(1000, 1000);
  Sequence& running = arrive(8);
  run(running, 500);
  EXPECT_FALSE(policy_.preempts(arrive(8), running, 0));
}

// Of 500 tokens that the client allows none is beyond them.
TEST_F(MlfqPolicyTest, WhoIsAboutToEndByItsLimitDoesNotGiveWay) {
  end_answers(10, 900);
  end_answers(2000, 100);
  Sequence& running = arrive(8, 510);
  run(running, 500);
  EXPECT_FALSE(policy_.preempts(arrive(8), running, 0));
}

TEST(MlfqPolicy, AQuantumThatIsGivenIsTaken) {
  MlfqPolicy policy(SchedulerOptions{.mlfq_quantum_seconds = 1});
  const std::vector<KvGroupSpec> groups = {{.block_tokens = 16}};
  Sequence sequence{.id = SequenceId(1),
                    .request = std::make_shared<Request>(),
                    .output = {},
                    .followers = {},
                    .blocks = SequenceBlocks(groups),
                    .path = {},
                    .state = Waiting{}};
  policy.note(SequenceEvent::kArrived, sequence);
  EXPECT_FALSE(policy.served(sequence, {.output_tokens = 1, .step_seconds = 0.9}));
  EXPECT_TRUE(policy.served(sequence, {.output_tokens = 1, .step_seconds = 0.2}));
  EXPECT_EQ(policy.rank(sequence).level, 1);
}

}  // namespace
}  // namespace headrace::mlfq_policy_test
