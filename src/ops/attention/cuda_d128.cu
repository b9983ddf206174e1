#include "ops/attention/fast_kernels.cuh"

namespace headrace {

void attention_cuda_d128(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<gpu::HeadShape<128>>(context, args);
}

}  // namespace headrace
