#include "ops/slot_state.h"

namespace headrace {

std::span<const Kernel<SlotStateArgs>> slot_state_cuda_kernels();  // slot_state_cuda.cu

KernelSet<SlotStateArgs> slot_state_kernels() {
  return KernelSet<SlotStateArgs>(slot_state_cuda_kernels());
}

void update_slot_state(OpContext& context, const SlotStateArgs& args) {
  if (args.entries.empty() && args.marks.empty() && args.tokens.empty()) return;
  slot_state_kernels().select(context.device, args).run(context, args);
}

}  // namespace headrace
