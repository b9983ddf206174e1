#include "engine/step_history.h"

#include <gtest/gtest.h>

namespace headrace::step_history_test {
namespace {

StepPlan plan_of(std::vector<Work> work) {
  StepPlan plan;
  plan.work = std::move(work);
  return plan;
}

TEST(StepHistory, TokensArePromptsOrDecodes) {
  StepHistory steps;
  Work piece{.count = 64}, last{.count = 3}, decode{.count = 1}, verify{.count = 4};
  last.samples = decode.samples = verify.samples = true;
  verify.proposed.tokens = {1, 2, 3};
  steps.add(plan_of({piece, last, decode, verify}), 10, 0.5);
  const auto found = steps.since(0, 12);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].number, 1u);
  EXPECT_EQ(found[0].prompt_tokens, 67);
  EXPECT_EQ(found[0].decode_tokens, 5);
  EXPECT_EQ(found[0].sequences, 4);
  EXPECT_EQ(found[0].age, 2);
  EXPECT_EQ(found[0].seconds, 0.5);
}

TEST(StepHistory, TheLastAreKept) {
  StepHistory steps;
  EXPECT_TRUE(steps.since(0, 0).empty());
  for (size_t i = 0; i < StepHistory::kKept + 10; ++i) {
    steps.add(plan_of({}), static_cast<double>(i), 0);
  }
  const auto all = steps.since(0, 0);
  ASSERT_EQ(all.size(), StepHistory::kKept);
  EXPECT_EQ(all.front().number, 11u);
  EXPECT_EQ(all.front().age, -10);
  EXPECT_EQ(all.back().number, StepHistory::kKept + 10);
  EXPECT_EQ(steps.since(StepHistory::kKept + 7, 0).size(), 3u);
  EXPECT_TRUE(steps.since(StepHistory::kKept + 10, 0).empty());
  EXPECT_TRUE(steps.since(~uint64_t{0}, 0).empty());
}

}  // namespace
}  // namespace headrace::step_history_test
