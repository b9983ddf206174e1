#include "ops/attention/fast_kernels.cuh"

namespace headrace {

void attention_cuda_d80(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<gpu::HeadShape<80>>(context, args);
}

}  // namespace headrace
