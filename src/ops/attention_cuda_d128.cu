#include "ops/attention_fast.cuh"

namespace headrace {

void attention_cuda_d128(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<128>(context, args);
}

// Barriers take 105 of the bytes that d128 leaves for them: 256 of 512 make room for a third stage.
void attention_cuda_d128_ring3(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<128, 256>(context, args);
}

}  // namespace headrace
