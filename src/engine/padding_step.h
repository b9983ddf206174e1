// What steps of nothing but padding attend to: recordings and trials run over one page that nobody
// else uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention/plan.h"

namespace headrace {

// One key for each row.
std::vector<AttentionSequence> padding_decodes(int32_t rows, const int32_t* table);
// So many rows in all, in prompts of at most `tokens` each.
std::vector<AttentionSequence> padding_prompts(int32_t rows, int32_t tokens, const int32_t* table);
// Tokens of each of the prompts that fill a step, so that the slots do for them.
int32_t padding_prompt_tokens(int32_t step_tokens, int32_t slots);

// [groups], each written where `to` says.
std::vector<AttentionPlan> plan_padding(std::span<const AttentionPlanShape> shapes,
                                        std::span<const AttentionSequence> sequences,
                                        std::span<const std::span<std::byte>> to);

}  // namespace headrace
