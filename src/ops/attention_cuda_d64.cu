#include "ops/attention_fast.cuh"

namespace headrace {

void attention_cuda_d64(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<64>(context, args);
}

void attention_cuda_d64_lazy(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<64, gpu::PrefillOptions{.lazy = true}>(context, args);
}

void attention_cuda_d64_three(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<64, gpu::PrefillOptions{.consumers = 3}>(context, args);
}

void attention_cuda_d64_three_lazy(OpContext& context, const AttentionArgs& args) {
  gpu::run_attention<64, gpu::PrefillOptions{.consumers = 3, .lazy = true}>(context, args);
}

}  // namespace headrace
