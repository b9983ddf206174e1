#include "engine/padding_step.h"

#include <algorithm>

namespace headrace {
namespace {

// A tile of one key may fetch entries behind its own; so many are more than any tile fetches.
constexpr size_t kPaddingTableEntries = 64;

}  // namespace

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

Result<PaddingTable> PaddingTable::create(Device& device, Stream& stream, int32_t page,
                                          int32_t block_tokens, int32_t prompt_tokens) {
  PaddingTable padding;
  padding.prompt_tokens_ = prompt_tokens;
  const auto entries = static_cast<size_t>(prompt_tokens / block_tokens + 1);
  const std::vector<int32_t> pages(kPaddingTableEntries + entries, page);
  const auto bytes = static_cast<int64_t>(pages.size() * sizeof(int32_t));
  HR_ASSIGN_OR_RETURN(padding.table_, device.allocate(bytes));
  stream.copy_in(padding.table_.data(), reinterpret_cast<const std::byte*>(pages.data()), bytes);
  HR_RETURN_IF_ERROR(stream.synchronize());
  return padding;
}

}  // namespace headrace
