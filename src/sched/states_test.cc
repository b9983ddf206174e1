// Where states are saved and which of them stay: models that keep states, on the oracle device.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "sched/scheduler.h"
#include "sim/oracle_device.h"

namespace headrace::states_test {
namespace {

// Units of four tokens. Each request gets the oracle's tokens, which the rig compares.
class StatesTest : public testing::Test {
 protected:
  void start(int32_t checkpoints) {
    options_.max_num_seqs = 8;
    options_.max_num_batched_tokens = 256;
    options_.max_model_len = 512;
    options_.groups = {{.block_tokens = 4}};
    options_.block_count = 512;
    options_.end_ids = {0};
    options_.state_checkpoints = checkpoints;
    scheduler_ = Scheduler::create(options_).value();
    device_ = std::make_unique<OracleDevice>(model_, options_.groups, options_.block_count,
                                             options_.max_num_seqs, options_.tiers, checkpoints);
  }

  std::vector<TokenId> random_tokens(int32_t count) {
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < count; ++i) tokens.push_back(1 + static_cast<TokenId>(rng_.below(900)));
    return tokens;
  }
  static std::vector<TokenId> joined(std::vector<TokenId> first, const std::vector<TokenId>& then) {
    first.insert(first.end(), then.begin(), then.end());
    return first;
  }
  // What every request of this prompt is answered.
  std::vector<TokenId> answer_to(const std::vector<TokenId>& prompt, size_t count) const {
    const Request request = request_of(RequestId(0), prompt, 1);
    std::vector<TokenId> tokens = prompt;
    while (tokens.size() < prompt.size() + count) {
      tokens.push_back(oracle_next_token(model_, request, 0, tokens));
    }
    return {tokens.begin() + static_cast<ptrdiff_t>(prompt.size()), tokens.end()};
  }

  RequestId add(const std::vector<TokenId>& prompt, int32_t max_tokens) {
    const RequestId id(next_id_++);
    EXPECT_TRUE(scheduler_->add(request_of(id, prompt, max_tokens)).ok());
    prompts_[id] = prompt;
    return id;
  }
  void step() {
    const StepPlan plan = scheduler_->plan();
    ASSERT_FALSE(plan.empty());
    for (const Admission& each : plan.admitted) requests_[each.sequence] = each.request->id;
    for (const Work& work : plan.work) found_.emplace(requests_.at(work.sequence), work.first);
    for (const Emission& e : scheduler_->apply(plan, device_->execute(plan))) {
      finish_[e.request] = e.finish;
      std::vector<TokenId>& answer = answers_[e.request];
      answer.insert(answer.end(), e.tokens.begin(), e.tokens.end());
    }
    const Status status = scheduler_->check_invariants();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void run() {
    while (scheduler_->has_work()) ASSERT_NO_FATAL_FAILURE(step());
    for (const auto& [id, answer] : answers_) {
      EXPECT_EQ(answer, answer_to(prompts_[id], answer.size())) << id.value;
    }
    EXPECT_EQ(device_->mismatches(), 0u);
  }
  // Tokens of the prompt that a request finds, which runs alone.
  int32_t ask(const std::vector<TokenId>& prompt, int32_t max_tokens = 1) {
    const RequestId id = add(prompt, max_tokens);
    run();
    return found_[id];
  }
  // The same of one whose row is NaN.
  int32_t fault(const std::vector<TokenId>& prompt) {
    const RequestId id = add(prompt, 1);
    device_->inject_fault(id, 0);
    run();
    EXPECT_EQ(finish_[id], FinishReason::kFault);
    return found_[id];
  }

  OracleModel model_;
  SchedulerOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<OracleDevice> device_;
  std::map<RequestId, int32_t> found_;
  std::map<RequestId, FinishReason> finish_;

 private:
  static Request request_of(RequestId id, const std::vector<TokenId>& prompt, int32_t max_tokens) {
    Request request{.id = id, .prompt = prompt, .sampling = {}, .cache_salt = {}};
    request.sampling.seed = 1;
    request.sampling.max_tokens = max_tokens;
    return request;
  }

  Rng rng_{1};
  uint64_t next_id_ = 1;
  std::map<SequenceId, RequestId> requests_;
  std::map<RequestId, std::vector<TokenId>> prompts_, answers_;
};

// The state that another's prompt saved lies on the way of an answer, which passes it by.
TEST_F(StatesTest, AnAnswerLeavesCheckpointsThatAreNotItsOwn) {
  start(16);
  const std::vector<TokenId> prompt = random_tokens(20);
  const std::vector<TokenId> shared = joined(prompt, answer_to(prompt, 12));
  EXPECT_EQ(ask(joined(shared, random_tokens(9))), 0);  // saves behind 32 tokens
  ask(prompt, 40);
  EXPECT_EQ(ask(joined(shared, random_tokens(9))), 32);
}

// Prompts of one length answered side by side save in the same steps, unit after unit.
TEST_F(StatesTest, AnswersLeaveSharedPromptsTheirCheckpoints) {
  constexpr int kSequences = 4;
  start(2 * kSequences);
  const std::vector<TokenId> system = random_tokens(32);
  for (const int32_t expected : {0, 0, 32}) {
    EXPECT_EQ(ask(joined(system, random_tokens(24))), expected);
  }
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kSequences; ++i) add(joined(system, random_tokens(24)), 60);
    run();
  }
  EXPECT_EQ(ask(joined(system, random_tokens(24))), 32);
}

// Both save their first unit in one step, and only one checkpoint is free.
TEST_F(StatesTest, NoAnswerTakesWhatIsPinned) {
  start(2);
  const std::vector<TokenId> pinned = random_tokens(20);
  ask(pinned);
  PrefixCache& cache = *scheduler_->prefix_cache();
  PrefixMatch match = cache.match({}, pinned, 12);
  ASSERT_EQ(match.tokens, 12);
  cache.pin(match);
  for (int i = 0; i < 2; ++i) add(random_tokens(6), 20);
  run();
  EXPECT_GT(scheduler_->stats().states.saved, 3u);
  EXPECT_EQ(ask(joined(pinned, random_tokens(3))), 12);
}

// An answer's own goes for its next, whatever else there is; what is left is the last.
TEST_F(StatesTest, OneCheckpointFollowsAnAnswer) {
  start(1);
  const std::vector<TokenId> prompt = random_tokens(6);
  const std::vector<TokenId> chat = joined(prompt, answer_to(prompt, 30));
  ask(prompt, 30);
  EXPECT_EQ(scheduler_->stats().states.evicted, 0u);
  EXPECT_EQ(ask(joined(chat, random_tokens(3))), 32);
}

// A prompt's state was NaN and nobody saw it, for the prompt was cancelled before its last row: the
// first that begins with it faults and takes it out, and the units that led to it.
TEST_F(StatesTest, ACheckpointThatLedToAFaultIsForgotten) {
  start(8);
  const std::vector<TokenId> system = random_tokens(16);
  for (int i = 0; i < 2; ++i) ask(joined(system, random_tokens(16)));  // the second saves behind it
  const std::vector<TokenId> prompt = joined(system, random_tokens(264));
  const RequestId cancelled = add(prompt, 1);
  step();  // 16 are found and 256 computed, behind which a state is saved
  ASSERT_TRUE(scheduler_->cancel(cancelled));
  EXPECT_EQ(fault(joined(prompt, random_tokens(12))), 272);
  EXPECT_EQ(ask(joined(prompt, random_tokens(12))), 16);
  EXPECT_EQ(ask(joined(prompt, random_tokens(12))), 16);
  EXPECT_EQ(ask(joined(prompt, random_tokens(12))), 280);
  EXPECT_EQ(fault(joined(system, random_tokens(12))), 16);
  EXPECT_EQ(ask(joined(prompt, random_tokens(12))), 0);
}

}  // namespace
}  // namespace headrace::states_test
