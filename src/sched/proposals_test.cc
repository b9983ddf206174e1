// Steps that verify proposals: what is planned, what a result leaves, what becomes of pages. The
// simulation (sim_test) has the invariants; here are the cases by hand.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "base/rng.h"
#include "sched/draft_source.h"
#include "sched/scheduler.h"

namespace headrace::proposals_test {
namespace {

using Tokens = std::vector<TokenId>;

class FixedSource final : public DraftSource {
 public:
  void propose(Sequence&, const ProposalBounds& bounds, TokenTree& proposed) override {
    proposed = {next, parents};
    proposed.cut(std::min(proposed.size(), parents.empty() ? bounds.depth : bounds.tokens));
  }
  Tokens next;
  std::vector<int32_t> parents;
};

class ProposalsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.max_num_seqs = 4;
    options_.max_num_batched_tokens = 32;
    options_.max_model_len = 64;
    options_.groups = {{.layers = {0}, .block_tokens = 4, .block_bytes = 1}};
    options_.block_count = 32;
    options_.end_ids = {0};
    options_.steps_in_flight_max = 2;
    source_ = std::make_shared<FixedSource>();
    options_.proposals = {.tokens_max = 4, .source = source_};
  }

  // A request whose prompt of 3 tokens has been computed and whose first token is 10.
  void begin(int32_t max_tokens) {
    scheduler_ = Scheduler::create(options_).value();
    Request request;
    request.id = RequestId(1);
    request.prompt = {1, 2, 3};
    request.sampling.max_tokens = max_tokens;
    ASSERT_TRUE(scheduler_->add(std::move(request)).ok());
    step({10});
  }
  // Plans a step whose one sequence gets these tokens.
  Tokens step(const Tokens& accepted) {
    plan_ = scheduler_->plan();
    EXPECT_EQ(plan_.work.size(), 1u);
    return apply(accepted);
  }
  Tokens apply(const Tokens& accepted) {
    StepResult result;
    result.rows.push_back({.sequence = plan_.work.front().sequence});
    for (const TokenId token : accepted) result.rows.front().accepted.push_back(token);
    const std::vector<Emission> emissions = scheduler_->apply(plan_, result);
    EXPECT_TRUE(scheduler_->check_invariants().ok()) << scheduler_->check_invariants().message();
    Tokens out;
    for (const Emission& emission : emissions) {
      out.insert(out.end(), emission.tokens.begin(), emission.tokens.end());
      finish_ = emission.finish;
    }
    return out;
  }
  const Work& work() const { return plan_.work.front(); }

  SchedulerOptions options_;
  std::shared_ptr<FixedSource> source_;
  std::unique_ptr<Scheduler> scheduler_;
  StepPlan plan_;
  FinishReason finish_ = FinishReason::kNone;
};

TEST_F(ProposalsTest, AStepGoesOnBehindWhatWasAccepted) {
  ASSERT_NO_FATAL_FAILURE(begin(40));
  source_->next = {11, 12, 13};
  EXPECT_EQ(step({11, 12, 20}), (Tokens{11, 12, 20}));  // 13 is rejected
  EXPECT_EQ(work().first, 3);
  EXPECT_EQ(work().count, 4);
  EXPECT_EQ(work().rows, LogitRows::kVerify);
  EXPECT_EQ(work().proposed.tokens, (Tokens{11, 12, 13}));
  EXPECT_EQ(step({21}), Tokens{21});  // all are rejected
  EXPECT_EQ(work().first, 6);         // 20, behind 3 of the prompt, 10, 11 and 12
  source_->next = {};
  EXPECT_EQ(step({22}), Tokens{22});
  EXPECT_EQ(work().first, 7);
  EXPECT_EQ(work().count, 1);
  EXPECT_EQ(work().rows, LogitRows::kLast);
  const SchedulerStats stats = scheduler_->stats();
  EXPECT_EQ(stats.proposals.proposed, 6u);
  EXPECT_EQ(stats.proposals.accepted, 2u);
  EXPECT_EQ(stats.proposals.accepted_at[0], 1u);
  EXPECT_EQ(stats.proposals.accepted_at[1], 1u);
  EXPECT_EQ(stats.proposals.accepted_at[2], 0u);
  EXPECT_EQ(stats.generation_tokens, 6u);
}

// 11 or 12 first, 13 behind the second, 14 behind that.
TEST_F(ProposalsTest, OfATreeThePathThatWasSampledIsKept) {
  options_.proposals.tree_width = 2;
  ASSERT_NO_FATAL_FAILURE(begin(40));
  source_->next = {11, 12, 13, 14};
  source_->parents = {-1, -1, 1, 2};
  EXPECT_EQ(step({12, 13, 20}), (Tokens{12, 13, 20}));
  EXPECT_EQ(work().first, 3);
  EXPECT_EQ(work().count, 5);
  EXPECT_EQ(work().proposed, (TokenTree{source_->next, source_->parents}));
  EXPECT_EQ(step({12, 13, 14, 21}), (Tokens{12, 13, 14, 21}));  // no token stood behind 14
  EXPECT_EQ(work().first, 6);
  EXPECT_EQ(step({22}), Tokens{22});
  EXPECT_EQ(work().first, 10);
  const SchedulerStats stats = scheduler_->stats();
  EXPECT_EQ(stats.proposals.verifications, 3u);
  EXPECT_EQ(stats.proposals.proposed, 12u);
  EXPECT_EQ(stats.proposals.accepted, 5u);
}

// Its rows take places that the answer must have, whatever its depth.
TEST_F(ProposalsTest, ATreeIsNoLargerThanTheAnswersRest) {
  options_.proposals.tree_width = 4;
  ASSERT_NO_FATAL_FAILURE(begin(4));
  source_->next = {11, 12, 13, 14};
  source_->parents = {-1, -1, -1, -1};
  EXPECT_EQ(step({12, 20}), (Tokens{12, 20}));
  EXPECT_EQ(work().count, 3);  // the fourth token of the answer comes last
  EXPECT_EQ(step({21}), Tokens{21});
  EXPECT_EQ(work().count, 1);
  EXPECT_EQ(finish_, FinishReason::kLength);
}

// Where rows cost nothing all of it, where a row costs nearly half a step the likeliest, where it
// costs a step none.
TEST_F(ProposalsTest, OfATreeWhatIsLikelyEnoughForItsTime) {
  for (const auto& [row_seconds, expected] :
       {std::pair{0.0, 4}, std::pair{0.45, 2}, std::pair{20.0, 0}}) {
    VirtualClock clock;
    options_.clock = &clock;
    options_.steps_in_flight_max = 1;
    options_.max_model_len = 128;
    options_.proposals.tree_width = 2;
    scheduler_ = Scheduler::create(options_).value();
    source_->parents = {};
    Request request;
    request.id = RequestId(1);
    request.prompt = {1, 2, 3};
    request.sampling.max_tokens = 100;
    ASSERT_TRUE(scheduler_->add(std::move(request)).ok());
    // Chains of no to four tokens, all right, tell what rows cost.
    for (int32_t i = 0; i < 24; ++i) {
      source_->next = {20, 21, 22, 23};
      source_->next.resize(static_cast<size_t>(i % 5));
      plan_ = scheduler_->plan();
      clock.advance_ns(static_cast<int64_t>(1e9 * (1 + row_seconds * (work().count - 1))));
      Tokens sampled = work().proposed.tokens;
      sampled.push_back(30);
      apply(sampled);
    }
    source_->next = {11, 12, 13, 14};
    source_->parents = {-1, 0, -1, 2};
    plan_ = scheduler_->plan();
    EXPECT_EQ(work().proposed.size(), expected) << row_seconds;
    if (expected == 2) {
      EXPECT_EQ(work().proposed, (TokenTree{{11, 12}}));
    }
  }
}

// One sequence alone decodes for long before a text repeats: what its steps took says nothing of
// rows, and proposals are tried.
TEST_F(ProposalsTest, ProposalsBeginWhateverWasMeasuredWithout) {
  VirtualClock clock;
  options_.clock = &clock;
  options_.steps_in_flight_max = 1;
  options_.max_model_len = 128;
  ASSERT_NO_FATAL_FAILURE(begin(100));
  for (int i = 0; i < 40; ++i) {
    plan_ = scheduler_->plan();
    clock.advance_ns(1'000'000'000);
    apply({20});
  }
  source_->next = {11, 12};
  plan_ = scheduler_->plan();
  EXPECT_EQ(work().proposed.tokens, (Tokens{11, 12}));
}

// With the path to it.
TEST_F(ProposalsTest, OfATreeAPartIsKept) {
  TokenTree tree{{1, 2, 3, 4, 5}, {-1, 0, -1, 2, 3}};
  TokenTree second = tree;
  second.keep({true, false, true, true, false});
  EXPECT_EQ(second, (TokenTree{{1, 3, 4}, {-1, -1, 1}}));
  tree.keep({false, false, true, true, true});
  EXPECT_EQ(tree, (TokenTree{{3, 4, 5}}));  // a chain
}

TEST_F(ProposalsTest, NothingIsPlannedBehindAnOpenOutcome) {
  ASSERT_NO_FATAL_FAILURE(begin(40));
  source_->next = {11, 12};
  plan_ = scheduler_->plan();
  ASSERT_EQ(work().count, 3);
  EXPECT_TRUE(scheduler_->plan().empty());
  EXPECT_EQ(apply({11, 12, 13}), (Tokens{11, 12, 13}));
  EXPECT_FALSE(scheduler_->plan().empty());
}

// Beside a step with half of those that decode, which get proposals, the others would have one of
// their own; fewer keep nobody.
TEST_F(ProposalsTest, AStepWithHalfOfThoseThatDecodeIsWaitedFor) {
  source_->next = {11};
  for (const int with_proposals : {0, 1, 2, 3}) {
    SCOPED_TRACE(with_proposals);
    scheduler_ = Scheduler::create(options_).value();
    for (int i = 0; i < 3; ++i) {
      Request request;
      request.id = RequestId(static_cast<uint64_t>(i + 1));
      request.prompt = {1, 2, 3};
      request.sampling.max_tokens = 20;
      if (i >= with_proposals) request.sampling.presence_penalty = 1;  // gets none
      ASSERT_TRUE(scheduler_->add(std::move(request)).ok());
    }
    const StepPlan prompts = scheduler_->plan();
    ASSERT_EQ(prompts.work.size(), 3u);
    StepResult result;
    for (const Work& work : prompts.work) result.rows.push_back({.sequence = work.sequence});
    for (StepResult::Row& row : result.rows) row.accepted.push_back(10);
    scheduler_->apply(prompts, result);
    const StepPlan decodes = scheduler_->plan();
    ASSERT_EQ(decodes.work.size(), 3u);
    EXPECT_EQ(scheduler_->plan().work.size(), with_proposals < 2 ? 3u - with_proposals : 0u);
  }
}

TEST_F(ProposalsTest, WhoseProposalsFailIsPlannedAheadAgain) {
  ASSERT_NO_FATAL_FAILURE(begin(60));
  source_->next = {9};
  for (int i = 0; i < 12; ++i) step({20});
  plan_ = scheduler_->plan();
  const StepPlan behind = scheduler_->plan();
  EXPECT_FALSE(behind.empty());
}

TEST_F(ProposalsTest, WhoGetsNoneIsPlannedAheadAgain) {
  ASSERT_NO_FATAL_FAILURE(begin(60));
  source_->next = {};
  for (int i = 0; i < 8; ++i) step({20});
  plan_ = scheduler_->plan();
  EXPECT_FALSE(scheduler_->plan().empty());
}

// Whose form knows what comes has it proposed, as many as a step may have, where steps do not
// overlap; what another source says is for free answers alone.
TEST_F(ProposalsTest, AFormProposesForItsOwnAnswer) {
  struct Counting final : TokenConstraint {
    struct Matcher final : TokenMatcher {
      void fill_mask(std::span<uint32_t>, int32_t) override {}
      bool only_ends() override { return false; }
      void accept(TokenId token) override { last = token; }
      void propose(size_t most, Tokens& tokens) override {
        for (TokenId next = last; next % 20 != 19 && most > 0; --most) tokens.push_back(++next);
      }
      TokenId last = 0;
    };
    std::unique_ptr<TokenMatcher> begin() const override { return std::make_unique<Matcher>(); }
  };
  source_->next = {77};
  for (const bool overlaps : {false, true}) {
    for (const bool allowed : {true, false}) {
      options_.steps_in_flight_max = overlaps ? 2 : 1;
      options_.proposals.jump_ahead = allowed;
      scheduler_ = Scheduler::create(options_).value();
      Request request;
      request.id = RequestId(1);
      request.prompt = {1, 2, 3};
      request.sampling.max_tokens = 40;
      request.constraint = std::make_shared<Counting>();
      ASSERT_TRUE(scheduler_->add(std::move(request)).ok());
      step({10});
      plan_ = scheduler_->plan();
      const bool jumps = allowed && !overlaps;
      EXPECT_EQ(work().proposed.tokens,
                jumps ? (Tokens{11, 12, 13, 14, 15, 16, 17, 18, 19}) : Tokens());
      if (!jumps) continue;
      EXPECT_EQ(apply({11, 12, 13, 40}), (Tokens{11, 12, 13, 40}));
      plan_ = scheduler_->plan();
      // The step has 32 tokens, half of what is left is for proposals.
      EXPECT_EQ(work().proposed.size(), 15);
      EXPECT_EQ(work().proposed.token(0), 41);
    }
  }
}

TEST_F(ProposalsTest, ARequestMayAskToBePlannedBehindItsResult) {
  options_.proposals = {};
  scheduler_ = Scheduler::create(options_).value();
  for (const uint64_t id : {1, 2}) {
    Request request;
    request.id = RequestId(id);
    request.prompt = {1, 2, 3};
    request.sampling.max_tokens = 9;
    request.lookahead = id == 1 ? Lookahead::kAfterResult : Lookahead::kBlind;
    ASSERT_TRUE(scheduler_->add(std::move(request)).ok());
  }
  const auto results = [](const StepPlan& plan) {
    StepResult result;
    for (const Work& each : plan.work) {
      result.rows.push_back({.sequence = each.sequence});
      result.rows.back().accepted.push_back(10);
    }
    return result;
  };
  const StepPlan prompts = scheduler_->plan();
  ASSERT_EQ(prompts.work.size(), 2u);
  const StepPlan ahead = scheduler_->plan();
  ASSERT_EQ(ahead.work.size(), 1u);  // the other one's
  EXPECT_EQ(ahead.work[0].sequence, prompts.work[1].sequence);
  scheduler_->apply(prompts, results(prompts));
  const StepPlan both = scheduler_->plan();
  EXPECT_EQ(both.work.size(), 2u);
  scheduler_->apply(ahead, results(ahead));
  scheduler_->apply(both, results(both));
  EXPECT_TRUE(scheduler_->check_invariants().ok()) << scheduler_->check_invariants().message();
}

TEST_F(ProposalsTest, TheLastTokenIsSampledAndNotComputed) {
  ASSERT_NO_FATAL_FAILURE(begin(4));
  source_->next = {11, 12, 13, 14};
  EXPECT_EQ(step({11, 12, 13}), (Tokens{11, 12, 13}));
  EXPECT_EQ(work().count, 3);  // 10 and two proposals: the fourth token of the answer comes last
  EXPECT_EQ(finish_, FinishReason::kLength);
  EXPECT_FALSE(scheduler_->has_work());
}

TEST_F(ProposalsTest, AnEndAmongTheAcceptedEndsTheAnswer) {
  ASSERT_NO_FATAL_FAILURE(begin(40));
  source_->next = {11, 0, 12};
  EXPECT_EQ(step({11, 0, 12, 13}), (Tokens{11, 0}));
  EXPECT_EQ(finish_, FinishReason::kStop);
  EXPECT_FALSE(scheduler_->has_work());
}

TEST_F(ProposalsTest, ProposalsTakeNoPageThatIsNotFree) {
  options_.block_count = 4;
  options_.max_model_len = 16;
  options_.enable_prefix_caching = false;
  ASSERT_NO_FATAL_FAILURE(begin(8));
  Request other;
  other.id = RequestId(2);
  other.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  other.sampling.max_tokens = 2;
  ASSERT_TRUE(scheduler_->add(std::move(other)).ok());
  source_->next = {11, 12, 13, 14};
  plan_ = scheduler_->plan();
  EXPECT_EQ(scheduler_->stats().preemptions, 0u);
}

// What a draft model is to propose has no tokens in the plan, and the runner may propose fewer.
TEST_F(ProposalsTest, ARunnerProposesAsManyAsItHas) {
  options_.proposals = {
      .method = ProposalMethod::kDraftModel, .tokens_max = 4, .whatever_they_cost = true};
  ASSERT_NO_FATAL_FAILURE(begin(40));
  const auto step_of = [&](int32_t drafted, const Tokens& accepted) {
    plan_ = scheduler_->plan();
    StepResult result;
    result.rows.push_back({.sequence = work().sequence});
    // The accepted ones, and others.
    Tokens& proposed = result.rows.front().drafted.tokens;
    proposed.assign(accepted.begin(), accepted.end() - 1);
    proposed.resize(static_cast<size_t>(drafted), 99);
    for (const TokenId token : accepted) result.rows.front().accepted.push_back(token);
    scheduler_->apply(plan_, result);
    EXPECT_TRUE(scheduler_->check_invariants().ok()) << scheduler_->check_invariants().message();
  };
  step_of(4, {11, 12});
  EXPECT_EQ(work().first, 3);
  EXPECT_EQ(work().count, 5);
  EXPECT_EQ(work().drafted, 4);
  EXPECT_TRUE(work().proposed.empty());
  EXPECT_EQ(work().rows, LogitRows::kVerify);
  step_of(0, {13});
  EXPECT_EQ(work().first, 5);
  step_of(1, {14, 15});
  EXPECT_EQ(work().first, 6);
  step_of(4, {16, 17, 18, 19, 20});
  EXPECT_EQ(work().first, 8);
  const ProposalStats stats = scheduler_->stats().proposals;
  EXPECT_EQ(stats.proposed, 9u);
  EXPECT_EQ(stats.accepted, 6u);
  EXPECT_EQ(stats.verifications, 3u);
}

TEST_F(ProposalsTest, PenaltiesAreNotProposedFor) {
  scheduler_ = Scheduler::create(options_).value();
  Request request;
  request.id = RequestId(1);
  request.prompt = {1, 2, 3};
  request.sampling.max_tokens = 9;
  request.sampling.frequency_penalty = 0.5f;
  ASSERT_TRUE(scheduler_->add(std::move(request)).ok());
  source_->next = {11};
  step({10});
  step({11});
  EXPECT_TRUE(work().proposed.empty());
}

// --- many at once ---

// Streams whose proposals, four behind each other, are right with one chance, in a world in which
// steps of so many rows take so long.
struct Crowd {
  int32_t streams;
  double right;
  double (*step_seconds)(double rows);
  int32_t requests = 200;
};
struct CrowdOutcome {
  double seconds = 0;
  ProposalStats proposals;
};

CrowdOutcome run_crowd(const Crowd& crowd, bool proposes) {
  VirtualClock clock;
  SchedulerOptions options;
  options.max_num_seqs = crowd.streams;
  options.max_model_len = 512;
  options.groups = {{.layers = {0}, .block_tokens = 16, .block_bytes = 1}};
  options.block_count = 64 * crowd.streams;
  options.enable_prefix_caching = false;
  options.clock = &clock;
  if (proposes) {
    const auto source = std::make_shared<FixedSource>();
    source->next = {1, 1, 1, 1};
    options.proposals = {.tokens_max = 4, .source = source};
  }
  const auto scheduler = Scheduler::create(options).value();
  Rng rng(7);
  int32_t sent = 0;
  while (scheduler->has_work() || sent < crowd.requests) {
    while (sent < crowd.requests &&
           scheduler->stats().running + scheduler->stats().waiting < crowd.streams) {
      Request request;
      request.id = RequestId(static_cast<uint64_t>(++sent));
      request.prompt = {1, 2, 3};
      request.sampling.max_tokens = 250;
      CHECK(scheduler->add(std::move(request)).ok());
    }
    const StepPlan plan = scheduler->plan();
    StepResult result;
    for (const Work& work : plan.work) {
      if (!work.samples) continue;
      StepResult::Row& row = result.rows.emplace_back();
      row.sequence = work.sequence;
      for (int32_t i = 0; i < work.proposal_count() && rng.uniform() < crowd.right; ++i) {
        row.accepted.push_back(1);
      }
      row.accepted.push_back(2);
    }
    clock.advance_ns(static_cast<int64_t>(1e9 * crowd.step_seconds(plan.token_count)));
    scheduler->apply(plan, result);
  }
  return {clock.now_seconds(), scheduler->stats().proposals};
}
double speedup(const Crowd& crowd) {
  return run_crowd(crowd, false).seconds / run_crowd(crowd, true).seconds;
}
// The ninth row of a step costs half a step: too much for what one of eight may win by it, and
// little for all of them.
TEST(ProposalsOfACrowd, ManyForWhomARowIsCheapTogetherAllPropose) {
  const auto seconds = [](double rows) { return rows <= 8 ? 0.01 : 0.016; };
  for (const int32_t streams : {6, 8, 16}) EXPECT_GE(speedup({streams, 0.8, seconds}), 1.6);
}

// Where together they cost more than they win, next to none of them propose.
TEST(ProposalsOfACrowd, WhereRowsCostTheirShareNobodyProposes) {
  const auto by_the_row = [](double rows) { return 0.001 + 0.02 * rows; };
  // As of a small model on two cores (StepCost).
  const auto in_tiles = [](double rows) {
    return 0.0025 + 0.00022 * rows + (rows > 8 ? 0.0015 : 0) + (rows > 16 ? 0.002 : 0);
  };
  for (const double right : {0.1, 0.3, 0.7, 0.9}) {
    for (const int32_t streams : {8, 16}) {
      EXPECT_GE(speedup({streams, right, by_the_row}), 0.97) << right << " " << streams;
      EXPECT_GE(speedup({streams, right, in_tiles}), 0.97) << right << " " << streams;
    }
  }
  EXPECT_LT(run_crowd({8, 0.7, by_the_row}, true).proposals.proposed, 200u * 250 / 50);
}

}  // namespace
}  // namespace headrace::proposals_test
