// What a step does beside the model, on the null device: slots' tables are kept as on a GPU, a
// token is the random bits of its row, no logit is read. Kernels whose work a recording must repeat
// go through Stream::call().
#include <array>
#include <cstring>

#include "ops/rows/row_gather.h"
#include "ops/sampling/device_sample.h"
#include "ops/sampling/slot_state.h"

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

void gather_nothing(OpContext&, const RowGatherArgs&) {}

void draw(const DeviceSampleArgs& args) {
  for (int64_t i = 0; i < args.logits.rows(); ++i) {
    const DeviceSampleRow& row = args.rows[i];
    const auto drawn =
        static_cast<TokenId>(row.random % static_cast<uint64_t>(args.logits.columns()));
    const TokenId token = row.scored >= 0 ? row.scored : drawn;
    args.results[i] = {.token = token, .fault = 0, .logprob = 0};
    for (int32_t k = 0; k < row.logprobs; ++k) args.tops[row.top_first + k] = {k, 0.0f};
    if (row.scored < 0) args.last_tokens[row.slot] = token;
  }
}

void draw_in_order(OpContext& context, const DeviceSampleArgs& args) {
  context.stream.call([args] { draw(args); });
}

constexpr std::array kSlotState = {
    Kernel<SlotStateArgs>{"slot_state/null/reference", on_null<SlotStateArgs>, keep_slots}};
constexpr std::array kRowGather = {
    Kernel<RowGatherArgs>{"row_gather/null/nothing", on_null<RowGatherArgs>, gather_nothing}};
constexpr std::array kDeviceSample = {Kernel<DeviceSampleArgs>{
    "device_sample/null/random", on_null<DeviceSampleArgs>, draw_in_order}};

}  // namespace

KernelTable<SlotStateArgs> slot_state_null_kernels() { return kSlotState; }
KernelTable<RowGatherArgs> row_gather_null_kernels() { return kRowGather; }
KernelTable<DeviceSampleArgs> device_sample_null_kernels() { return kDeviceSample; }

}  // namespace headrace
