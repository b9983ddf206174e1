// What steps of nothing but padding attend to: recordings and trials run over one page of the pool
// that no sequence uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "ops/attention/plan.h"
#include "tensor/device.h"

namespace headrace {

// A step of these sequences and nothing else.
struct PaddingStep {
  std::span<const AttentionSequence> sequences;
  int32_t logit_rows = 0;
  bool adapters = false;  // it runs as steps do of which some rows have adapters
  bool lone = false;      // without the other ranks: it launches what may have to be loaded
};

// `rows` sequences of one row and one key each.
std::vector<AttentionSequence> padding_decodes(int32_t rows, const int32_t* table);
// Prompts of at most `tokens` tokens each, of `rows` rows in all.
std::vector<AttentionSequence> padding_prompts(int32_t rows, int32_t tokens, const int32_t* table);
// Tokens of each of the prompts that fill a step, such that there are no more prompts than slots.
int32_t padding_prompt_tokens(int32_t step_tokens, int32_t slots);

// The plan of each group, written where `to` says.
std::vector<AttentionPlan> plan_padding(std::span<const AttentionPlanShape> shapes,
                                        std::span<const AttentionSequence> sequences,
                                        std::span<const std::span<std::byte>> to);

// A block table in device memory, every entry of which is the page of padding.
class PaddingTable {
 public:
  PaddingTable() = default;
  // For prompts of up to `prompt_tokens`. `page` as block tables name it.
  static Result<PaddingTable> create(Device& device, Stream& stream, int32_t page,
                                     int32_t block_tokens, int32_t prompt_tokens);

  // As padding_decodes() and padding_prompts() say, with prompts of `prompt_tokens`.
  std::vector<AttentionSequence> decodes(int32_t rows) const {
    return padding_decodes(rows, blocks());
  }
  std::vector<AttentionSequence> prompts(int32_t rows) const {
    return padding_prompts(rows, prompt_tokens_, blocks());
  }

 private:
  const int32_t* blocks() const { return reinterpret_cast<const int32_t*>(table_.data()); }

  Buffer table_;  // [pages of a prompt and more] int32
  int32_t prompt_tokens_ = 0;
};

}  // namespace headrace
