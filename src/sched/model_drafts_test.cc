// How a draft model is weighed, in a world in which steps and passes take what is said here and
// each proposed token is right with one chance.
#include "sched/model_drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/rng.h"
#include "sched/scheduler.h"

namespace headrace::model_drafts_test {
namespace {

TEST(DraftCost, PassesAndRowsAreToldApart) {
  DraftCost cost;
  const auto seconds = [](int passes, int rows) { return 0.009 * passes + 0.0015 * rows; };
  for (const auto& [passes, rows] : {std::pair{3, 3}, {5, 5}, {1, 200}, {4, 16}, {2, 2}, {3, 30}}) {
    for (int i = 0; i < 5; ++i) cost.observe({passes, rows, seconds(passes, rows)});
  }
  EXPECT_NEAR(cost.per_pass(), 0.009, 0.0002);
  EXPECT_NEAR(cost.per_row(), 0.0015, 0.00002);
}

TEST(DraftCost, NeitherIsBelowZero) {
  DraftCost cost;
  cost.observe({1, 1, 0.1});
  EXPECT_NEAR(cost.seconds(1, 1), 0.1, 0.001);
  for (int i = 0; i < 20; ++i) cost.observe({4, 4, 0.01}), cost.observe({1, 100, 0.5});
  EXPECT_GE(cost.per_pass(), 0);
  EXPECT_GE(cost.per_row(), 0);
}

struct World {
  double right = 0;
  int32_t streams = 1, requests = 12, prompt = 200, answer = 250;
  double base = 0.022, row = 0.003, prompt_token = 0.004;  // of the model's steps
  double pass = 0.008, draft_row = 0.0015;                 // of the draft's passes
  // Of heads: where trees may be so wide, their second token is right so often where the first is
  // not, and their third where neither is.
  int32_t width = 1;
  double second = 0, third = 0;

  double step_seconds(double rows) const { return base + row * rows; }
  // Tokens a second of one stream that always drafts `depth`, prompts left out.
  double rate(int32_t depth) const {
    double tokens = 1, chance = 1;
    for (int32_t i = 0; i < depth; ++i) tokens += chance *= right;
    return tokens / (step_seconds(1 + depth) + depth * (pass + draft_row));
  }
};

struct Outcome {
  double seconds = 0;
  ProposalStats proposals;
};

Outcome run(const World& world, bool drafts) {
  VirtualClock clock;
  SchedulerOptions options;
  options.max_num_seqs = world.streams;
  options.max_model_len = 1024;
  options.groups = {{.layers = {0}, .block_tokens = 16, .block_bytes = 1}};
  options.block_count = 1000 * world.streams;
  options.enable_prefix_caching = false;
  options.clock = &clock;
  if (drafts) options.proposals = {.method = ProposalMethod::kDraftModel};
  if (drafts && world.width > 1) {
    options.proposals = {.method = ProposalMethod::kMedusa, .tree_width = world.width};
  }
  const auto scheduler = Scheduler::create(options).value();
  Rng rng(3);
  std::map<SequenceId, int32_t> drafted;  // tokens that the draft has computed
  int32_t sent = 0;
  while (scheduler->has_work() || sent < world.requests) {
    while (sent < world.requests &&
           scheduler->stats().running + scheduler->stats().waiting < world.streams) {
      Request request;
      request.id = RequestId(static_cast<uint64_t>(++sent));
      request.prompt.assign(static_cast<size_t>(world.prompt), 1);
      request.sampling.max_tokens = world.answer;
      CHECK(scheduler->add(std::move(request)).ok());
    }
    const StepPlan plan = scheduler->plan();
    StepResult result;
    double rows = 0, prompt_tokens = 0;
    for (const Work& work : plan.work) {
      const bool decodes = work.count == 1 + work.drafted && work.first >= world.prompt;
      (decodes ? rows : prompt_tokens) += work.count;
      if (!work.samples) continue;
      StepResult::Row& row = result.rows.emplace_back();
      row.sequence = work.sequence;
      row.drafted.tokens.assign(static_cast<size_t>(work.drafted), 0);
      if (!work.form.is_chain()) row.drafted = work.form.ranks;
      row.accepted.push_back(1);
      if (work.drafted == 0) continue;
      const int32_t known = work.first + 1;
      const int32_t passes = work.form.is_chain() ? work.drafted : work.form.depth;
      result.drafting.passes = std::max(result.drafting.passes, passes);
      result.drafting.rows += known - drafted[work.sequence] + work.drafted - 1;
      row.accepted.clear();
      int32_t accepted = 0, last = TokenTree::kBeforeAll;
      while (row.drafted.goes_on(last)) {
        const TokenId rank = rng.uniform() < world.right                       ? 0
                             : world.width > 1 && rng.uniform() < world.second ? 1
                             : world.width > 1 && rng.uniform() < world.third  ? 2
                                                                               : 99;
        last = row.drafted.child(last, rank);
        if (last == TokenTree::kBeforeAll) break;
        row.accepted.push_back(row.drafted.token(last));
        ++accepted;
      }
      row.accepted.push_back(1);
      drafted[work.sequence] = known + std::min(accepted, work.drafted - 1);
    }
    if (world.width > 1) result.drafting.rows = result.drafting.passes;
    result.drafting.seconds =
        result.drafting.passes * world.pass + result.drafting.rows * world.draft_row;
    const double seconds = world.step_seconds(rows) + world.prompt_token * prompt_tokens;
    clock.advance_ns(static_cast<int64_t>(1e9 * (seconds + result.drafting.seconds)));
    scheduler->apply(plan, result);
  }
  return {clock.now_seconds(), scheduler->stats().proposals};
}

double speedup(const World& world) { return run(world, false).seconds / run(world, true).seconds; }

TEST(ModelDrafts, AWrongDraftCostsNextToNothing) {
  for (const double right : {0.0, 0.1, 0.3}) {
    for (const int32_t streams : {1, 4, 16}) {
      for (const int32_t prompt : {20, 500}) {
        const World world{
            .right = right, .streams = streams, .requests = 10 + 4 * streams, .prompt = prompt};
        EXPECT_GE(speedup(world), 0.97) << right << " " << streams << " " << prompt;
      }
    }
  }
}

// Nearly as fast as at the best of all depths, the draft's prompts and what is tried included.
TEST(ModelDrafts, ARightDraftIsUsedToTheDepthThatPays) {
  for (const double right : {0.7, 0.8, 0.9, 0.97}) {
    const World world{.right = right, .requests = 20, .prompt = 1};
    double best = world.rate(0);
    for (int32_t depth = 1; depth <= 5; ++depth) best = std::max(best, world.rate(depth));
    EXPECT_GE(speedup(world), 0.95 * best / world.rate(0)) << right;
  }
  EXPECT_GE(speedup({.right = 0.9, .requests = 20, .prompt = 20}), 1.25);
  EXPECT_GE(speedup({.right = 0.6, .requests = 20, .prompt = 20}), 0.99);  // 1.07 at best
}

// Where second tokens are often right and rows cost little, trees bring more than chains; where
// they cost much, or second tokens are as good as never right, chains are what is chosen.
TEST(ModelDrafts, TreesAreGrownWhereTheyPay) {
  World world{.right = 0.6, .requests = 20, .prompt = 1, .row = 0.0006, .pass = 0.0005};
  const auto ratio = [&] {
    World chains = world;
    chains.width = 1;
    return run(chains, true).seconds / run(world, true).seconds;
  };
  world.width = 3, world.second = 0.5, world.third = 0.3;
  EXPECT_GT(ratio(), 1.1);
  world.right = 0.3;
  EXPECT_GT(ratio(), 1.1);
  world.row = 0.012;
  EXPECT_GT(ratio(), 0.97);
  world.right = 0.8, world.row = 0.002, world.second = world.third = 0;
  EXPECT_GT(ratio(), 0.97);
  for (const int32_t streams : {1, 4, 16}) {
    EXPECT_GT(speedup({.right = 0.1, .streams = streams, .requests = 40, .width = 3}), 0.97);
  }
}

// On a GPU a pass costs a draft's weights, whatever the rows: too much for one of many sequences,
// little for all of them. They begin together.
TEST(ModelDrafts, ManyForWhomAPassIsCheapTogetherAllDraft) {
  for (const int32_t streams : {16, 32, 64}) {
    const World world{.right = 0.8,
                      .streams = streams,
                      .requests = 4 * streams,
                      .base = 0.0045,
                      .row = 0.000016,
                      .prompt_token = 0.00001,
                      .pass = 0.00025,
                      .draft_row = 0.000002};
    double tokens = 1, chance = 1, best = 1;
    for (int32_t depth = 1; depth <= 5; ++depth) {
      tokens += chance *= world.right;
      const double rows = streams * (1.0 + depth);
      const double seconds =
          world.step_seconds(rows) + depth * world.pass + world.draft_row * streams * depth;
      best = std::max(best, tokens * world.step_seconds(streams) / seconds);
    }
    EXPECT_GE(speedup(world), 0.8 * best) << streams << ": " << best;
  }
}

// Steps of many rows cost by the row: there the draft brings nothing, and is not asked.
TEST(ModelDrafts, WhereRowsCostTheirShareNobodyDrafts) {
  const World world{.right = 0.9, .streams = 16, .requests = 48, .base = 0.001, .row = 0.02};
  const Outcome with = run(world, true);
  EXPECT_GE(run(world, false).seconds / with.seconds, 0.97);
  EXPECT_LT(with.proposals.proposed, 48u * 250 / 10);
}

}  // namespace
}  // namespace headrace::model_drafts_test
