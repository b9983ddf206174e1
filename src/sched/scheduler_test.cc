// Directed tests: one behaviour each, on the oracle device.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <map>

#include "sched/oracle_device.h"

namespace headrace {
namespace {

SchedulerOptions small_options() {
  SchedulerOptions options;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 32;
  options.max_model_len = 256;
  options.groups = {{.block_tokens = 4}};
  options.block_count = 256;
  options.end_ids = {0};
  return options;
}

Request make_request(uint64_t id, int32_t prompt_tokens, int32_t max_tokens, int32_t n = 1) {
  Request request{.id = RequestId(id), .prompt = {}, .sampling = {}, .cache_salt = {}};
  for (int32_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<TokenId>((id * 31 + static_cast<uint64_t>(i) * 7) % 1000));
  }
  request.sampling.seed = id;
  request.sampling.max_tokens = max_tokens;
  request.sampling.n = n;
  return request;
}

// A scheduler and a device, with what each choice has received.
struct Rig {
  explicit Rig(SchedulerOptions o, OracleModel m = {})
      : options(std::move(o)),
        model(m),
        scheduler(Scheduler::create(options).value()),
        device(model, options.groups, options.block_count, options.max_num_seqs) {}

  struct Choice {
    std::vector<TokenId> tokens;
    std::vector<TokenLogprobs> logprobs, prompt_logprobs;
    FinishReason finish = FinishReason::kNone;
    std::optional<TokenId> stop_token;
  };

  // One step, or false when nothing can run.
  bool step() {
    last_plan = scheduler->plan();
    if (last_plan.empty()) return false;
    ++steps;
    preemptions_max = std::max(preemptions_max, scheduler->stats().preemptions);
    const StepResult result = device.execute(last_plan);
    for (const Emission& e : scheduler->apply(last_plan, result)) take(e);
    const Status status = scheduler->check_invariants();
    EXPECT_TRUE(status.ok()) << status.message();
    return status.ok();
  }
  void take(const Emission& e) {
    Choice& c = got[{e.request.value, e.choice}];
    EXPECT_EQ(c.finish, FinishReason::kNone);
    c.tokens.insert(c.tokens.end(), e.tokens.begin(), e.tokens.end());
    c.logprobs.insert(c.logprobs.end(), e.logprobs.begin(), e.logprobs.end());
    if (!e.prompt_logprobs.empty()) {
      EXPECT_EQ(e.prompt_first, static_cast<int32_t>(c.prompt_logprobs.size()) + 1);
    }
    c.prompt_logprobs.insert(c.prompt_logprobs.end(), e.prompt_logprobs.begin(),
                             e.prompt_logprobs.end());
    c.finish = e.finish;
    c.stop_token = e.stop_token;
  }
  void run(int steps_max = 100000) {
    while (scheduler->has_work() && steps_max-- > 0) ASSERT_TRUE(step());
    EXPECT_FALSE(scheduler->has_work());
    EXPECT_EQ(scheduler->stats().blocks_used, 0);
  }
  std::vector<TokenId> expected(const Request& request, int32_t choice, size_t count) const {
    std::vector<TokenId> tokens = request.prompt;
    while (tokens.size() < request.prompt.size() + count) {
      tokens.push_back(oracle_next_token(model, request, choice, tokens));
    }
    return {tokens.begin() + static_cast<ptrdiff_t>(request.prompt.size()), tokens.end()};
  }

  SchedulerOptions options;
  OracleModel model;
  std::unique_ptr<Scheduler> scheduler;
  OracleDevice device;
  StepPlan last_plan;
  std::map<std::pair<uint64_t, int32_t>, Choice> got;
  int steps = 0;
  uint64_t preemptions_max = 0;
};

TEST(Scheduler, OneRequestGivesTheOraclesTokens) {
  Rig rig(small_options());
  const Request request = make_request(1, 50, 20);
  ASSERT_TRUE(rig.scheduler->add(request).ok());
  rig.run();
  EXPECT_EQ((rig.got[{1, 0}].tokens), rig.expected(request, 0, 20));
  EXPECT_EQ((rig.got[{1, 0}].finish), FinishReason::kLength);
  EXPECT_EQ(rig.steps, 2 + 19);  // 50 prompt tokens under a budget of 32, then a token a step
}

TEST(Scheduler, ChoicesShareThePromptAndCopyOnWrite) {
  Rig rig(small_options());
  const Request request = make_request(1, 18, 20, 4);  // 4 full pages and half of one
  ASSERT_TRUE(rig.scheduler->add(request).ok());
  ASSERT_TRUE(rig.step());
  EXPECT_EQ(rig.scheduler->stats().blocks_used, 5);
  EXPECT_EQ(rig.last_plan.work.size(), 1u);
  EXPECT_EQ(rig.last_plan.work[0].also_sample.size(), 3u);
  EXPECT_EQ(rig.last_plan.admitted.size(), 4u);
  ASSERT_TRUE(rig.step());
  EXPECT_EQ(rig.last_plan.copies.size(), 3u);  // the last holder writes in place
  EXPECT_EQ(rig.scheduler->stats().blocks_used, 4 + 4);
  rig.run();
  for (int32_t choice = 0; choice < 4; ++choice) {
    EXPECT_EQ((rig.got[{1, choice}].tokens), rig.expected(request, choice, 20));
  }
}

}  // namespace
}  // namespace headrace
