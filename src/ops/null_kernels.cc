// What a step does beside the model, on the null device: slots' tables are kept as on a GPU, a
// token is the random bits of its row, what its penalties count and what its mask allows, no logit
// is read. Kernels whose work a recording must repeat go through Stream::call().
#include <algorithm>
#include <array>
#include <cstring>

#include "base/token_constraint.h"
#include "ops/rows/row_gather.h"
#include "ops/sampling/device_sample.h"
#include "ops/sampling/slot_state.h"
#include "ops/sampling/spread_logits.h"

namespace headrace {
namespace {

template <class Args>
bool on_null(const DeviceTraits& traits, const Args&) {
  return traits.kind == DeviceKind::kNull;
}

// In stream order: the arena is filled anew for the next step.
void keep_slots(OpContext&, const SlotStateArgs& args) {
  for (const BlockTableEntry& entry : args.entries) args.block_tables[entry.index] = entry.block;
  for (const TokenMark& mark : args.marks) {
    uint16_t& count = args.token_counts[mark.index];
    count = mark.in_output != 0 ? static_cast<uint16_t>(count + 1)
                                : static_cast<uint16_t>(count | kTokenInPrompt);
  }
  for (TokenId& token : args.tokens) {
    if (token < 0) token = args.last_tokens[slot_of_token(token).value];
  }
}

// The sum of the tokens that the row's penalties count, each as often as it is counted.
int64_t penalty_sum(const DeviceSampleArgs& args, const DeviceSampleRow& row) {
  const int64_t vocabulary = args.logits.columns();
  if (row.penalises == 0) return 0;
  const uint16_t* const counts = args.token_counts + row.slot * vocabulary;
  int64_t sum = 0;
  for (int64_t token = 0; token < vocabulary; ++token) {
    const int in_prompt = (counts[token] & kTokenInPrompt) != 0 ? 1 : 0;
    sum += token * (in_prompt + (counts[token] & kTokenCountMax));
  }
  return sum;
}

void count_drawn(const DeviceSampleArgs& args, const DeviceSampleRow& row, TokenId token) {
  if (row.penalises == 0 || token < 0) return;
  uint16_t* const counts = args.token_counts + row.slot * args.logits.columns();
  const TokenId leaves = row.leaves == kLastLeaves ? args.last_tokens[row.slot] : row.leaves;
  if (leaves >= 0) --counts[leaves];
  ++counts[token];
}

void gather_nothing(OpContext&, const RowGatherArgs&) {}
void spread_nothing(OpContext&, const SpreadLogitsArgs&) {}

// The first token from the row's random bits and its penalties' sum on, in a circle, that its mask
// allows; -1: none.
TokenId drawn_token(const DeviceSampleArgs& args, const DeviceSampleRow& row) {
  const int64_t vocabulary = args.logits.columns();
  const auto random = static_cast<int64_t>(row.random % static_cast<uint64_t>(vocabulary));
  const int64_t first = (random + penalty_sum(args, row)) % vocabulary;
  if (row.mask < 0) return static_cast<TokenId>(first);
  const uint32_t* const mask = args.masks + row.mask * token_mask_words(vocabulary);
  for (int64_t i = 0; i < vocabulary; ++i) {
    const int64_t token = (first + i) % vocabulary;
    if ((mask[token / 32] >> (token % 32) & 1) != 0) return static_cast<TokenId>(token);
  }
  return -1;
}

void draw(const DeviceSampleArgs& args) {
  for (int64_t i = 0; i < args.logits.rows(); ++i) {
    const DeviceSampleRow& row = args.rows[i];
    const TokenId token = row.scored >= 0 ? row.scored : drawn_token(args, row);
    args.results[i] = {.token = token, .fault = token < 0 ? 1 : 0, .logprob = 0};
    for (int32_t k = 0; k < row.logprobs; ++k) args.tops[row.top_first + k] = {k, 0.0f};
    if (row.scored >= 0) continue;
    count_drawn(args, row, token);
    args.last_tokens[row.slot] = std::max(token, TokenId{0});
  }
}

void draw_in_order(OpContext& context, const DeviceSampleArgs& args) {
  context.stream.call([args] { draw(args); });
}

constexpr std::array kSlotState = {
    Kernel<SlotStateArgs>{"slot_state/null/reference", on_null<SlotStateArgs>, keep_slots}};
constexpr std::array kRowGather = {
    Kernel<RowGatherArgs>{"row_gather/null/nothing", on_null<RowGatherArgs>, gather_nothing}};
constexpr std::array kSpreadLogits = {Kernel<SpreadLogitsArgs>{
    "spread_logits/null/nothing", on_null<SpreadLogitsArgs>, spread_nothing}};
constexpr std::array kDeviceSample = {Kernel<DeviceSampleArgs>{
    "device_sample/null/random", on_null<DeviceSampleArgs>, draw_in_order}};

}  // namespace

KernelTable<SlotStateArgs> slot_state_null_kernels() { return kSlotState; }
KernelTable<RowGatherArgs> row_gather_null_kernels() { return kRowGather; }
KernelTable<SpreadLogitsArgs> spread_logits_null_kernels() { return kSpreadLogits; }
KernelTable<DeviceSampleArgs> device_sample_null_kernels() { return kDeviceSample; }

}  // namespace headrace
