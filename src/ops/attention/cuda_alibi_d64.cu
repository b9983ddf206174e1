#include "ops/attention/fast_kernels.cuh"

namespace headrace {

void attention_cuda_alibi_d64(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<gpu::HeadShape<64, 64, /*kHasSlopes=*/true>>(context, args);
}

}  // namespace headrace
