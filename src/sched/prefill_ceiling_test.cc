#include "sched/prefill_ceiling.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

// 4 ms and 20 us a prompt token; decodes shall have a token each 12 ms.
TEST(PrefillCeiling, FollowsWhatStepsCost) {
  PrefillCeiling ceiling(0.012);
  EXPECT_EQ(ceiling.prompt_tokens(8, 2048), 2048) << "nothing was measured";
  for (int i = 0; i < 50; ++i) {
    ceiling.observe(0, 8, 0.004);
    const int32_t tokens = ceiling.prompt_tokens(8, 2048);
    ceiling.observe(tokens, 8, 0.004 + 20e-6 * tokens);
  }
  EXPECT_NEAR(ceiling.prompt_tokens(8, 2048), 400, 20);
  EXPECT_EQ(ceiling.prompt_tokens(8, 100), 100);
  EXPECT_EQ(ceiling.prompt_tokens(0, 2048), 2048) << "nobody decodes";
  // The machine becomes four times slower.
  for (int i = 0; i < 50; ++i) {
    ceiling.observe(0, 8, 0.008);
    ceiling.observe(200, 8, 0.008 + 80e-6 * 200);
  }
  EXPECT_NEAR(ceiling.prompt_tokens(8, 2048), 50, 5);
  for (int i = 0; i < 50; ++i) ceiling.observe(0, 8, 0.02);
  EXPECT_EQ(ceiling.prompt_tokens(8, 2048), PrefillCeiling::kTokensMin) << "prompts go on";
}

TEST(PrefillCeiling, WithoutATargetThereIsNone) {
  PrefillCeiling ceiling(0);
  ceiling.observe(100, 8, 1.0);
  EXPECT_EQ(ceiling.prompt_tokens(8, 2048), 2048);
}

}  // namespace
}  // namespace headrace
