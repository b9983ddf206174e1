#include "engine/model_work.h"

#include <gtest/gtest.h>

namespace headrace::model_work_test {
namespace {

// Two kinds of layers: all keys, and a window of 4.
ModelWork small_model() {
  return {.operations_per_row = 1000,
          .operations_per_logits = 100,
          .weight_bytes = 500,
          .output_bytes = 50,
          .attention = {{.window = 0, .operations_per_key = 8, .key_bytes = 4},
                        {.window = 4, .operations_per_key = 2, .key_bytes = 1}}};
}

StepPlan plan_of(std::vector<Work> work) {
  StepPlan plan;
  for (Work& each : work) plan.token_count += each.count;
  plan.work = std::move(work);
  return plan;
}

TEST(ModelWork, ADecodeAndAChunkOfAPrompt) {
  // Rows at positions 9; and 2, 3, 4, of which none samples.
  const StepWork step = work_of(
      plan_of({{.first = 9, .count = 1, .rows = LogitRows::kLast}, {.first = 2, .count = 3}}),
      small_model());
  // 10 keys and 3 + 4 + 5 of them; in the window 4, and 3 + 4 + 4.
  EXPECT_DOUBLE_EQ(step.operations, 4 * 1000 + 100 + 8 * (10 + 12) + 2 * (4 + 11));
  // A chunk reads its keys once: 10 and 5; 4, and the 5 that its rows see together.
  EXPECT_DOUBLE_EQ(step.read_bytes, 500 + 50 + 4 * (10 + 5) + 1 * (4 + 5));
  EXPECT_DOUBLE_EQ(step.written_bytes, (4 + 1) * 4);
}

TEST(ModelWork, RowsOfLogits) {
  const auto logits = [](Work work) {
    const ModelWork output{.operations_per_logits = 1};
    return work_of(plan_of({std::move(work)}), output).operations;
  };
  EXPECT_EQ(logits({.count = 5}), 0);
  EXPECT_EQ(logits({.count = 5, .rows = LogitRows::kLast}), 1);
  EXPECT_EQ(logits({.count = 5, .rows = LogitRows::kAll}), 5);
  EXPECT_EQ(logits({.count = 4, .rows = LogitRows::kVerify, .drafted = 3}), 4);
}

TEST(ModelWork, ExpertsThatNoRowTakesAreNotRead) {
  const ModelWork model{.experts = {.operations_per_row = 10, .bytes = 800, .used_share = 0.25}};
  EXPECT_DOUBLE_EQ(work_of(plan_of({{.count = 1}}), model).read_bytes, 200);
  EXPECT_DOUBLE_EQ(work_of(plan_of({{.count = 2}}), model).read_bytes, 350);
  EXPECT_DOUBLE_EQ(work_of(plan_of({{.count = 2}}), model).operations, 20);
  EXPECT_EQ(work_of({}, model).read_bytes, 0);
}

TEST(ModelWork, WithoutSizesNothingIsEstimated) {
  const StepWork step = work_of(plan_of({{.first = 3, .count = 2}}), {});
  EXPECT_EQ(step.operations + step.read_bytes + step.written_bytes, 0);
}

}  // namespace
}  // namespace headrace::model_work_test
