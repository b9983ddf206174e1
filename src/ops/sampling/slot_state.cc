#include "ops/sampling/slot_state.h"

namespace headrace {

const KernelSet<SlotStateArgs>& slot_state_kernels() {
  static const KernelSet<SlotStateArgs> set({slot_state_cuda_kernels(), slot_state_null_kernels()});
  return set;
}

OpCost op_cost(const SlotStateArgs& args) {
  const auto rows = static_cast<int64_t>(args.tokens.size());
  return row_op_cost(rows, 1, rows * static_cast<int64_t>(sizeof(TokenId)));
}

void update_slot_state(OpContext& context, const SlotStateArgs& args) {
  if (args.entries.empty() && args.marks.empty() && args.tokens.empty()) return;
  run_op(context, slot_state_kernels(), args);
}

}  // namespace headrace
