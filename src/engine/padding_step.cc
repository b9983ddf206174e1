#include "engine/padding_step.h"

#include <algorithm>

namespace headrace {

std::vector<AttentionSequence> padding_decodes(int32_t rows, const int32_t* table) {
  return padding_prompts(rows, 1, table);
}

std::vector<AttentionSequence> padding_prompts(int32_t rows, int32_t tokens, const int32_t* table) {
  std::vector<AttentionSequence> sequences;
  for (int32_t first = 0; first < rows; first += tokens) {
    const int32_t count = std::min(rows - first, tokens);
    sequences.push_back(
        {.row_first = first, .row_count = count, .kv_length = count, .block_table = table});
  }
  return sequences;
}

int32_t padding_prompt_tokens(int32_t step_tokens, int32_t slots) {
  constexpr int32_t kUsual = 1024;
  return std::max(kUsual, (step_tokens + slots - 1) / slots);
}

std::vector<AttentionPlan> plan_padding(std::span<const AttentionPlanShape> shapes,
                                        std::span<const AttentionSequence> sequences,
                                        std::span<const std::span<std::byte>> to) {
  std::vector<AttentionPlan> plans;
  for (size_t group = 0; group < shapes.size(); ++group) {
    plans.push_back(plan_attention(shapes[group], sequences, to[group]));
  }
  return plans;
}

}  // namespace headrace
