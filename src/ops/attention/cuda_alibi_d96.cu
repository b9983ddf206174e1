#include "ops/attention/fast_kernels.cuh"

namespace headrace {

void attention_cuda_alibi_d96(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<gpu::HeadShape<96, 96, /*kHasSlopes=*/true>>(context, args);
}

}  // namespace headrace
