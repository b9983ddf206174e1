#include "engine/padding_step.h"

#include <gtest/gtest.h>

namespace headrace::padding_step_test {
namespace {

TEST(PaddingStep, PromptsFillTheStepRowByRow) {
  const int32_t table[] = {7};
  const std::vector<AttentionSequence> prompts = padding_prompts(2500, 1024, table);
  ASSERT_EQ(prompts.size(), 3u);
  int32_t next = 0;
  for (const AttentionSequence& prompt : prompts) {
    EXPECT_EQ(prompt.row_first, next);
    EXPECT_EQ(prompt.kv_length, prompt.row_count);
    EXPECT_EQ(prompt.block_table, table);
    next += prompt.row_count;
  }
  EXPECT_EQ(next, 2500);
}

TEST(PaddingStep, DecodesReadOneKeyEach) {
  const std::vector<AttentionSequence> decodes = padding_decodes(5, nullptr);
  ASSERT_EQ(decodes.size(), 5u);
  EXPECT_EQ(decodes[4].row_first, 4);
  EXPECT_EQ(decodes[4].row_count, 1);
  EXPECT_EQ(decodes[4].kv_length, 1);
}

TEST(PaddingStep, PromptsAreNoMoreThanThereAreSlots) {
  for (const int32_t slots : {1, 3, 8, 256}) {
    for (const int32_t tokens : {1, 512, 8192, 8193}) {
      const int32_t each = padding_prompt_tokens(tokens, slots);
      EXPECT_LE(padding_prompts(tokens, each, nullptr).size(), static_cast<size_t>(slots));
    }
  }
}

}  // namespace
}  // namespace headrace::padding_step_test
