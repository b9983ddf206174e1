// Directed tests: one behaviour each, on the oracle device.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>

#include "base/rng.h"
#include "sim/oracle_device.h"

namespace headrace::scheduler_test {
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
        device(model, options.groups, options.block_count, options.max_num_seqs, options.tiers) {}

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
    for (const Admission& a : last_plan.admitted) ++admissions[a.sequence];
    StepResult result = device.execute(last_plan);
    if (change_result) change_result(result);
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
  std::map<SequenceId, int> admissions;
  std::function<void(StepResult&)> change_result;
};

// Keeps as many steps in flight as the options allow and cancels `id` before the `at`-th plan.
// False when everything had ended before.
bool run_and_cancel(Rig& rig, RequestId id, int at) {
  std::deque<std::pair<StepPlan, StepResult>> in_flight;
  bool cancelled = false;
  for (int plans = 0; rig.scheduler->has_work(); ++plans) {
    if (plans == at) {
      cancelled = rig.scheduler->cancel(id);
      EXPECT_TRUE(rig.scheduler->check_invariants().ok());
    }
    StepPlan plan = rig.scheduler->plan();
    const bool idle = plan.empty();
    EXPECT_FALSE(idle && in_flight.empty() && rig.scheduler->has_work());
    if (!idle) {
      StepResult result = rig.device.execute(plan);
      in_flight.emplace_back(std::move(plan), std::move(result));
    }
    const auto depth = static_cast<size_t>(rig.options.steps_in_flight_max);
    if (in_flight.empty() || (!idle && in_flight.size() < depth)) continue;
    const auto& [oldest, result] = in_flight.front();
    for (const Emission& emission : rig.scheduler->apply(oldest, result)) {
      EXPECT_FALSE(cancelled && emission.request == id);
      rig.take(emission);
    }
    in_flight.pop_front();
    const Status status = rig.scheduler->check_invariants();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(rig.scheduler->stats().blocks_used, 0);
  EXPECT_EQ(rig.device.mismatches(), 0u);
  return cancelled;
}

TEST(Scheduler, OneRequestGivesTheOraclesTokens) {
  Rig rig(small_options());
  const Request request = make_request(1, 50, 20);
  ASSERT_TRUE(rig.scheduler->add(request).ok());
  rig.run();
  EXPECT_EQ((rig.got[{1, 0}].tokens), rig.expected(request, 0, 20));
  EXPECT_EQ((rig.got[{1, 0}].finish), FinishReason::kLength);
  EXPECT_EQ(rig.steps, 2 + 19);  // 50 prompt tokens under a budget of 32, then a token a step
}

TEST(Scheduler, AnAnswerGoesOnThatWasBegunElsewhere) {
  const Request whole = make_request(1, 50, 20);
  for (const size_t begun : {size_t{1}, size_t{7}, size_t{19}}) {
    Rig rig(small_options());
    const std::vector<TokenId> expected = rig.expected(whole, 0, 20);
    Request request = whole;
    request.answered.assign(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(begun));
    ASSERT_TRUE(rig.scheduler->add(request).ok());
    rig.run();
    EXPECT_EQ(
        (rig.got[{1, 0}].tokens),
        std::vector<TokenId>(expected.begin() + static_cast<ptrdiff_t>(begun), expected.end()));
    EXPECT_EQ((rig.got[{1, 0}].finish), FinishReason::kLength);
  }
  // As another choice than the first.
  Rig rig(small_options());
  const std::vector<TokenId> expected = rig.expected(whole, 3, 20);
  Request request = whole;
  request.first_choice = 3;
  request.answered.assign(expected.begin(), expected.begin() + 5);
  ASSERT_TRUE(rig.scheduler->add(request).ok());
  rig.run();
  EXPECT_EQ((rig.got[{1, 0}].tokens), std::vector<TokenId>(expected.begin() + 5, expected.end()));

  request.answered = expected;
  EXPECT_EQ(rig.scheduler->check(request).message(),
            "the answer has 20 tokens, and max_tokens is 20: it has ended");
  request.answered.pop_back();
  request.sampling.n = 2;
  EXPECT_EQ(rig.scheduler->check(request).field(), "answered");
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

TEST(Scheduler, APageIsOfOneAdapterAndOneArithmetic) {
  Rig rig(small_options());
  uint64_t id = 0;
  // Tokens that a request of the same prompt finds.
  const auto found = [&](uint64_t adapter, uint64_t arithmetic) {
    Request request = make_request(9, 16, 4);
    request.id = RequestId(++id);
    request.adapter = adapter;
    request.arithmetic = arithmetic;
    const uint64_t before = rig.scheduler->stats().prefix_cache_hits;
    EXPECT_TRUE(rig.scheduler->add(request).ok());
    rig.run();
    EXPECT_EQ((rig.got[{id, 0}].tokens), rig.expected(request, 0, 4));
    return rig.scheduler->stats().prefix_cache_hits - before;
  };
  for (const uint64_t adapter : {0, 1}) {
    for (const uint64_t arithmetic : {0, 5}) {
      EXPECT_EQ(found(adapter, arithmetic), 0u) << adapter << " " << arithmetic;
      EXPECT_EQ(found(adapter, arithmetic), 15u);
    }
  }
  EXPECT_EQ(rig.device.mismatches(), 0);
}

TEST(Scheduler, MaxTokensZeroOnlyScoresThePrompt) {
  Rig rig(small_options());
  Request request = make_request(1, 50, 0, 2);
  request.sampling.prompt_logprobs = 1;
  ASSERT_TRUE(rig.scheduler->add(request).ok());
  rig.run();
  for (int32_t choice = 0; choice < 2; ++choice) {
    EXPECT_TRUE((rig.got[{1, choice}].tokens.empty()));
    EXPECT_EQ((rig.got[{1, choice}].finish), FinishReason::kLength);
  }
  EXPECT_EQ((rig.got[{1, 0}].prompt_logprobs.size()), 49u);
  EXPECT_EQ(rig.steps, 2);
}

TEST(Scheduler, EchoedLogprobsEqualGeneratedOnes) {
  Rig rig(small_options());
  Request generated = make_request(1, 20, 30);
  generated.sampling.logprobs = 2;
  ASSERT_TRUE(rig.scheduler->add(generated).ok());
  rig.run();
  Request echoed = make_request(2, 1, 0);
  echoed.prompt = generated.prompt;
  const auto& first = rig.got[{1, 0}];
  echoed.prompt.insert(echoed.prompt.end(), first.tokens.begin(), first.tokens.end());
  echoed.sampling.prompt_logprobs = 2;
  ASSERT_TRUE(rig.scheduler->add(echoed).ok());
  rig.run();
  const auto& second = rig.got[{2, 0}];
  ASSERT_EQ(second.prompt_logprobs.size(), 49u);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(second.prompt_logprobs[19 + i].logprob, first.logprobs[i].logprob);
    EXPECT_EQ(second.prompt_logprobs[19 + i].top, first.logprobs[i].top);
  }
}

TEST(Scheduler, StopRules) {
  const OracleModel model{.vocab_size = 8, .end_id = 0, .end_probability = 0.2};
  const auto index_of = [](const std::vector<TokenId>& tokens, TokenId token, size_t from) {
    return static_cast<size_t>(
        std::find(tokens.begin() + static_cast<ptrdiff_t>(from), tokens.end(), token) -
        tokens.begin());
  };
  Rig rig(small_options(), model);
  Request plain = make_request(1, 5, 100);
  Request late = make_request(2, 5, 100);
  late.sampling.min_tokens = 20;
  Request never = make_request(3, 5, 100);
  never.sampling.ignore_eos = true;
  Request stop = make_request(4, 5, 100);
  stop.sampling.ignore_eos = true;
  stop.sampling.stop_token_ids = {5};
  Request loop = make_request(5, 5, 100);
  loop.sampling.ignore_eos = true;
  loop.sampling.loop = {.size_max = 1, .count_min = 2};
  for (const Request& request : {plain, late, never, stop, loop}) {
    ASSERT_TRUE(rig.scheduler->add(request).ok());
  }
  rig.run();
  const auto tokens_until = [&](const Request& request, TokenId token, size_t from) {
    return index_of(rig.expected(request, 0, 100), token, from) + 1;
  };
  EXPECT_EQ((rig.got[{1, 0}].tokens.size()), tokens_until(plain, 0, 0));
  EXPECT_EQ((rig.got[{1, 0}].finish), FinishReason::kStop);
  EXPECT_FALSE((rig.got[{1, 0}].stop_token));
  EXPECT_EQ((rig.got[{2, 0}].tokens.size()), tokens_until(late, 0, 20));
  EXPECT_EQ((rig.got[{3, 0}].tokens.size()), 100u);
  EXPECT_EQ((rig.got[{3, 0}].finish), FinishReason::kLength);
  EXPECT_EQ((rig.got[{4, 0}].tokens.size()), tokens_until(stop, 5, 0));
  EXPECT_EQ((rig.got[{4, 0}].stop_token), 5);
  const std::vector<TokenId> endless = rig.expected(loop, 0, 100);
  const auto twice = std::adjacent_find(endless.begin(), endless.end());
  EXPECT_EQ((rig.got[{5, 0}].tokens.size()), static_cast<size_t>(twice - endless.begin()) + 2);
  EXPECT_EQ((rig.got[{5, 0}].finish), FinishReason::kRepetition);
}

TEST(Scheduler, AFaultEndsItsOwnChoiceAlone) {
  Rig rig(small_options());
  const Request faulty = make_request(1, 10, 10, 2);
  const Request other = make_request(2, 10, 10);
  ASSERT_TRUE(rig.scheduler->add(faulty).ok());
  ASSERT_TRUE(rig.scheduler->add(other).ok());
  ASSERT_TRUE(rig.step());
  rig.device.inject_fault(RequestId(1), 1);
  rig.run();
  EXPECT_EQ((rig.got[{1, 1}].finish), FinishReason::kFault);
  EXPECT_EQ((rig.got[{1, 1}].tokens.size()), 1u);
  EXPECT_EQ((rig.got[{1, 0}].tokens), rig.expected(faulty, 0, 10));
  EXPECT_EQ((rig.got[{2, 0}].tokens), rig.expected(other, 0, 10));
}

// A runner says it of a form: no token may follow, or the last one was the form's own end.
TEST(Scheduler, AFormEndsItsOwnChoiceAlone) {
  Rig rig(small_options());
  Request request = make_request(1, 10, 10, 3);
  request.sampling.min_tokens = 9;
  request.sampling.ignore_eos = true;
  ASSERT_TRUE(rig.scheduler->add(request).ok());
  rig.change_result = [step = 0](StepResult& result) mutable {
    if (++step != 4) return;
    ASSERT_EQ(result.rows.size(), 3u);
    result.rows[0].dead_end = true;
    result.rows[2].form_ended = true;
  };
  rig.run();
  EXPECT_EQ((rig.got[{1, 0}].finish), FinishReason::kDeadEnd);
  EXPECT_EQ((rig.got[{1, 0}].tokens), rig.expected(request, 0, 3));
  EXPECT_EQ((rig.got[{1, 1}].finish), FinishReason::kLength);
  EXPECT_EQ((rig.got[{1, 1}].tokens), rig.expected(request, 1, 10));
  EXPECT_EQ((rig.got[{1, 2}].finish), FinishReason::kStop);
  EXPECT_EQ((rig.got[{1, 2}].tokens), rig.expected(request, 2, 4));
}

TEST(Scheduler, TheOthersLiveOnWhenChoiceZeroIsCancelledInItsPrompt) {
  Rig rig(small_options());
  const Request request = make_request(1, 100, 10, 3);
  ASSERT_TRUE(rig.scheduler->add(request).ok());
  ASSERT_TRUE(rig.step());
  EXPECT_TRUE(rig.scheduler->cancel(RequestId(1), 0));
  EXPECT_FALSE(rig.scheduler->cancel(RequestId(1), 0));
  rig.run();
  EXPECT_EQ((rig.got.count({1, 0})), 0u);
  EXPECT_EQ((rig.got[{1, 1}].tokens), rig.expected(request, 1, 10));
  EXPECT_EQ((rig.got[{1, 2}].tokens), rig.expected(request, 2, 10));
  EXPECT_EQ(rig.scheduler->stats().prompt_tokens, 100u);  // the prompt was computed once
}

TEST(Scheduler, DecodesComeFirstAndPromptChunksFillTheBudget) {
  Rig rig(small_options());
  ASSERT_TRUE(rig.scheduler->add(make_request(1, 10, 50)).ok());
  ASSERT_TRUE(rig.step());
  ASSERT_TRUE(rig.scheduler->add(make_request(2, 100, 5)).ok());
  for (int chunk = 0; chunk < 3; ++chunk) {
    ASSERT_TRUE(rig.step());
    ASSERT_EQ(rig.last_plan.work.size(), 2u);
    EXPECT_EQ(rig.last_plan.work[0].count, 1);
    EXPECT_EQ(rig.last_plan.work[1].count, 31);
    EXPECT_FALSE(rig.last_plan.work[1].samples);
  }
  ASSERT_TRUE(rig.step());
  EXPECT_EQ(rig.last_plan.work[1].count, 7);
  EXPECT_TRUE(rig.last_plan.work[1].samples);
  rig.run();
}

// A long prompt leaves room for short ones, and keeps half of the budget.
TEST(Scheduler, AShortPromptDoesNotWaitForALongOne) {
  Rig rig(small_options());
  ASSERT_TRUE(rig.scheduler->add(make_request(1, 200, 5)).ok());
  ASSERT_TRUE(rig.step());
  EXPECT_EQ(rig.last_plan.work[0].count, 32);
  ASSERT_TRUE(rig.scheduler->add(make_request(2, 20, 5)).ok());
  ASSERT_TRUE(rig.step());
  ASSERT_EQ(rig.last_plan.work.size(), 2u);
  EXPECT_EQ(rig.last_plan.work[0].count, 16);
  EXPECT_EQ(rig.last_plan.work[1].count, 16);
  ASSERT_TRUE(rig.step());
  ASSERT_EQ(rig.last_plan.work.size(), 2u);
  EXPECT_EQ(rig.last_plan.work[0].count, 28);
  EXPECT_EQ(rig.last_plan.work[1].count, 4);
  EXPECT_TRUE(rig.last_plan.work[1].samples);
  rig.run();
  EXPECT_EQ(rig.steps, 1 + 2 + 4 + 4) << "no budget is lost";
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  SchedulerOptions options = small_options();
  options.max_model_len = 8192;
  const auto scheduler = Scheduler::create(options).value();
  const auto refusal = [&](const Request& request) { return scheduler->check(request); };
  EXPECT_EQ(refusal(make_request(1, 9000, 16)).message(),
            "prompt has 9000 tokens and max_tokens is 16, together more than the context of 8192");
  EXPECT_EQ(refusal(make_request(1, 9000, 16)).field(), "prompt");
  EXPECT_EQ(refusal(make_request(1, 90, 2147483647)).field(), "max_tokens");
  EXPECT_EQ(refusal(make_request(1, 0, 16)).field(), "prompt");
  EXPECT_EQ(refusal(make_request(1, 4, 16, 9)).field(), "n");
  EXPECT_EQ(refusal(make_request(1, 4, -1)).field(), "max_tokens");
  // 256 pages of 4 tokens. The last token is sampled, not computed: 1024 + 1 tokens fit.
  EXPECT_TRUE(refusal(make_request(1, 1020, 5)).ok());
  EXPECT_EQ(refusal(make_request(1, 1020, 6)).field(), "prompt");
  EXPECT_EQ(refusal(make_request(1, 1024, 1)).code(), StatusCode::kOk);
  EXPECT_EQ(refusal(make_request(1, 1025, 1)).message(),
            "prompt of 1025 tokens, max_tokens 1 and n 1 need 257 KV blocks, more than the 256 "
            "there are");
  EXPECT_TRUE(refusal(make_request(1, 512, 129, 4)).ok());  // 128 shared and 4 x 32
  EXPECT_EQ(refusal(make_request(1, 512, 130, 4)).code(), StatusCode::kInvalidArgument);
}

// What a file may say: layers of which no two are alike.
TEST(Scheduler, RefusesMoreGroupsThanAUnitCounts) {
  SchedulerOptions options = small_options();
  options.groups.assign(64, options.groups.front());
  EXPECT_TRUE(Scheduler::create(options).ok());
  options.groups.push_back(options.groups.front());
  const auto refused = Scheduler::create(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().field(), "groups");
}

// Prompts of the whole pool less a page, exactly, and plus one; neighbours do not notice.
TEST(Scheduler, NeverFits) {
  for (int32_t spare : {-1, 0, 1}) {
    SchedulerOptions options = small_options();
    options.block_count = 20;
    Rig rig(options);
    const Request neighbour = make_request(1, 30, 20);
    const Request large = make_request(2, (20 + spare) * 4, 1);
    ASSERT_TRUE(rig.scheduler->add(neighbour).ok());
    EXPECT_EQ(rig.scheduler->add(large).ok(), spare <= 0);
    rig.run();
    EXPECT_EQ((rig.got[{1, 0}].tokens), rig.expected(neighbour, 0, 20));
    if (spare > 0) continue;
    EXPECT_EQ((rig.got[{2, 0}].tokens), rig.expected(large, 0, 1));
  }
}

TEST(Scheduler, AFullQueueSaysExhausted) {
  SchedulerOptions options = small_options();
  options.max_num_seqs = 2;
  options.max_queued_requests = 3;
  Rig rig(options);
  for (uint64_t id = 1; id <= 5; ++id) {
    ASSERT_TRUE(rig.scheduler->add(make_request(id, 5, 5)).ok());
  }
  EXPECT_EQ(rig.scheduler->add(make_request(6, 5, 5)).code(), StatusCode::kExhausted);
  rig.run();
  EXPECT_TRUE(rig.scheduler->add(make_request(7, 5, 5)).ok());
}

// A pool of the largest request and one page, 64 clients: all finish without thrashing.
TEST(Scheduler, NoLivelock) {
  SchedulerOptions options = small_options();
  options.max_num_seqs = 64;
  options.max_num_batched_tokens = 64;
  options.block_count = 32 + 1;
  Rig rig(options);
  std::vector<Request> requests;
  uint64_t ideal = 0;
  for (uint64_t id = 1; id <= 64; ++id) {
    requests.push_back(make_request(id, 8 + static_cast<int32_t>(id * 5 % 24),
                                    20 + static_cast<int32_t>(id * 11 % 76)));
    if (id == 64) requests.back() = make_request(id, 40, 89);  // 128 tokens: 32 pages
    ideal +=
        requests.back().prompt.size() + static_cast<uint64_t>(requests.back().sampling.max_tokens);
    ASSERT_TRUE(rig.scheduler->add(requests.back()).ok());
  }
  rig.run();
  for (const Request& request : requests) {
    const auto& choice = rig.got[{request.id.value, 0}];
    EXPECT_EQ(choice.tokens,
              rig.expected(request, 0, static_cast<size_t>(request.sampling.max_tokens)));
  }
  int preemptions_max = 0;
  for (const auto& [sequence, count] : rig.admissions) {
    preemptions_max = std::max(preemptions_max, count - 1);
  }
  EXPECT_LE(preemptions_max, 3);
  EXPECT_GT(rig.scheduler->stats().preemptions, 0u);
  EXPECT_LE(rig.scheduler->stats().recomputed_tokens, ideal);
  std::printf("64 clients: %lu preemptions, at most %d of one; %lu tokens recomputed of %lu\n",
              rig.scheduler->stats().preemptions, preemptions_max,
              rig.scheduler->stats().recomputed_tokens, ideal);
}

// A background prompt waits a step for the pages that it loads; a younger one begins to decode
// meanwhile, takes the whole budget of a token and with it, in the end, the last page.
TEST(Scheduler, TheOldestPromptOfTheBackgroundGoesOn) {
  SchedulerOptions options = small_options();
  options.max_num_batched_tokens = 1;
  options.max_model_len = 9;
  options.groups = {{.block_tokens = 1}};
  options.block_count = 9;
  options.tiers = {{.pages = 64}};
  Rig rig(options);
  const auto add = [&](uint64_t id, std::vector<TokenId> prompt, int32_t max_tokens) {
    Request request = make_request(id, 0, max_tokens);
    request.prompt = std::move(prompt);
    request.background = true;
    ASSERT_TRUE(rig.scheduler->add(request).ok());
  };
  add(1, {1, 2, 3, 4}, 1);
  rig.run();
  add(2, {21, 22, 23, 24, 25, 26, 27, 28}, 1);  // its pages push those of the first out
  rig.run();
  add(3, {1, 2, 3, 4, 5}, 2);
  add(4, {31}, 7);
  rig.run();
  EXPECT_EQ(rig.scheduler->stats().pages_moved.loaded, 3u);
}

// Static batching against continuous batching: the same work, steps, rows that idle and rows that
// are computed for nobody.
TEST(Scheduler, ContinuousBatchingKeepsRowsBusy) {
  struct Counts {
    int steps = 0;
    uint64_t idle = 0, for_nobody = 0;
  };
  const auto run = [](const std::string& policy, bool computes_ended_rows) {
    SchedulerOptions options = small_options();
    options.policy = policy;
    options.static_computes_ended_rows = computes_ended_rows;
    options.max_num_batched_tokens = 128;
    Rig rig(options);
    for (uint64_t id = 1; id <= 64; ++id) {
      EXPECT_TRUE(rig.scheduler->add(make_request(id, 8, id % 8 == 0 ? 100 : 10)).ok());
    }
    rig.run();
    const SchedulerStats stats = rig.scheduler->stats();
    EXPECT_EQ(stats.generation_tokens, 8u * 100 + 56 * 10);
    EXPECT_EQ(stats.recomputed_tokens, 0u);
    std::printf("%s: %d steps for 1360 tokens, %lu idle row steps, %lu tokens for nobody\n",
                policy.c_str(), rig.steps, stats.idle_row_steps, stats.ended_row_tokens);
    return Counts{rig.steps, stats.idle_row_steps, stats.ended_row_tokens};
  };
  const Counts fcfs = run("fcfs", true), computed = run("static", true),
               skipped = run("static", false), one = run("one-at-a-time", true);
  EXPECT_LT(fcfs.steps * 2, computed.steps);
  EXPECT_LT(computed.steps, one.steps);
  EXPECT_EQ(fcfs.idle, 0u);
  EXPECT_EQ(fcfs.for_nobody, 0u);
  // 7 of 8 rows wait for the longest.
  EXPECT_EQ(computed.idle, 8u * 7 * 90);
  EXPECT_EQ(computed.for_nobody, computed.idle);
  EXPECT_EQ(skipped.steps, computed.steps);
  EXPECT_EQ(skipped.idle, computed.idle);
  EXPECT_EQ(skipped.for_nobody, 0u);
}

// A row that has ended gives its pages to those of its batch that go on.
TEST(Scheduler, AnEndedRowOfABatchGivesItsPagesFirst) {
  SchedulerOptions options = small_options();
  options.policy = "static";
  options.groups = {{.block_tokens = 4}};
  options.block_count = 32;  // 128 tokens: the long one alone has 108
  options.enable_prefix_caching = false;
  options.max_num_batched_tokens = 128;
  Rig rig(options);
  for (uint64_t id = 1; id <= 4; ++id) {
    ASSERT_TRUE(rig.scheduler->add(make_request(id, 8, id == 1 ? 100 : 4)).ok());
  }
  rig.run();
  EXPECT_EQ(rig.scheduler->stats().preemptions, 0u);
  EXPECT_GT(rig.scheduler->stats().ended_row_tokens, 0u);
}

// PagedAttention's figure: reserving max_len wastes most of the pool, paging almost nothing.
TEST(Scheduler, PagingWastesLittleAndReservingMost) {
  for (const KvAllocation allocation : {KvAllocation::kPaged, KvAllocation::kReserveMax}) {
    SchedulerOptions options = small_options();
    options.allocation = allocation;
    options.max_num_seqs = 64;
    options.max_num_batched_tokens = 512;
    options.groups = {{.block_tokens = 16}};
    options.block_count = 100;  // 1600 tokens: six whole contexts of 256
    options.policy = "fcfs";
    Rig rig(options);
    for (uint64_t id = 1; id <= 64; ++id) {
      ASSERT_TRUE(rig.scheduler->add(make_request(id, 17 + static_cast<int32_t>(id % 7), 30)).ok());
    }
    double used = 0, held = 0;
    int32_t running_max = 0;
    while (rig.scheduler->has_work()) {
      ASSERT_TRUE(rig.step());
      const KvWaste waste = rig.scheduler->kv_waste();
      EXPECT_EQ(waste.total, 1600);
      used += static_cast<double>(waste.used);
      held += static_cast<double>(waste.used + waste.reserved + waste.internal);
      running_max = std::max(running_max, rig.scheduler->stats().running);
      if (allocation == KvAllocation::kPaged) {
        EXPECT_EQ(waste.reserved + waste.external, 0);
      }
    }
    const double wasted = 1 - used / held;
    std::printf("%s: %.0f%% of the held token slots are empty, %d run at once, %d steps\n",
                allocation == KvAllocation::kPaged ? "paged" : "reserved", 100 * wasted,
                running_max, rig.steps);
    if (allocation == KvAllocation::kPaged) {
      EXPECT_LT(wasted, 0.25);  // 17 to 53 tokens in pages of 16
      EXPECT_GT(running_max, 20);
    } else {
      EXPECT_GT(wasted, 0.8);
      EXPECT_EQ(running_max, 6);
    }
  }
}

// Cancel every request of small traces at every step, with one and two steps in flight: the others
// get their tokens, and every page comes back.
TEST(Scheduler, AbortEverywhere) {
  const char* setting = std::getenv("HEADRACE_ABORT_TRACES");
  const uint64_t traces = setting == nullptr ? 1400 : std::strtoull(setting, nullptr, 10);
  int64_t aborts = 0;
  for (uint64_t trace = 1; trace <= traces; ++trace) {
    SchedulerOptions options = small_options();
    options.max_num_seqs = 4;
    options.max_num_batched_tokens = 12;
    options.block_count = 16 + static_cast<int32_t>(trace % 8);
    options.steps_in_flight_max = 1 + static_cast<int32_t>(trace % 2);
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 5; ++i) {
      const uint64_t bits = mix64(trace * 100 + i);
      requests.push_back(make_request(i + 1, 1 + static_cast<int32_t>(bits % 20),
                                      1 + static_cast<int32_t>(bits / 64 % 12),
                                      1 + static_cast<int32_t>(bits / 4096 % 3)));
    }
    std::map<std::pair<size_t, int32_t>, std::vector<TokenId>> expected_of;
    for (size_t i = 0; i < requests.size(); ++i) {
      for (int32_t choice = 0; choice < requests[i].sampling.n; ++choice) {
        expected_of[{i, choice}] = Rig(options).expected(
            requests[i], choice, static_cast<size_t>(requests[i].sampling.max_tokens));
      }
    }
    for (size_t victim = 0; victim < requests.size(); ++victim) {
      bool reached = true;
      for (int at = 0; reached; ++at) {
        Rig rig(options);
        for (const Request& request : requests) ASSERT_TRUE(rig.scheduler->add(request).ok());
        reached = run_and_cancel(rig, requests[victim].id, at);
        aborts += reached ? 1 : 0;
        for (size_t i = 0; i < requests.size(); ++i) {
          for (int32_t choice = 0; choice < requests[i].sampling.n; ++choice) {
            const auto& got = rig.got[{requests[i].id.value, choice}];
            std::vector<TokenId> expected = expected_of[{i, choice}];
            if (i == victim) expected.resize(std::min(expected.size(), got.tokens.size()));
            ASSERT_EQ(got.tokens, expected)
                << "trace " << trace << " victim " << victim << " at step " << at;
          }
        }
      }
    }
  }
  std::printf("%ld aborts\n", aborts);
  EXPECT_GT(aborts, static_cast<int64_t>(traces) * 70);
}

}  // namespace
}  // namespace headrace::scheduler_test
