#include "ops/attention/decode_rope.cuh"

namespace headrace {

void rope_attention_cuda_d64(OpContext& context, const RopeAttentionArgs& args) {
  gpu::run_rope_attention<64>(context, args);
}

}  // namespace headrace
