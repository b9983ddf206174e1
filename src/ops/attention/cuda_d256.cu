#include "ops/attention/fast_kernels.cuh"

namespace headrace {

void attention_cuda_d256(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<gpu::HeadShape<256>>(context, args);
}

}  // namespace headrace
