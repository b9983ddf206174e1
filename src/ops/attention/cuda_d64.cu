#include "ops/attention/fast_kernels.cuh"

namespace headrace {

void attention_cuda_d64(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<gpu::HeadShape<64>>(context, args);
}

}  // namespace headrace
