// The fast attention kernels of one head size, of which each attention_cuda_d<dim>.cu makes the
// instances: bf16 and f16, prefill with and without splits, decode with 8 and 16 rows a tile.
#pragma once

#include "ops/attention_decode.cuh"
#include "ops/attention_prefill.cuh"

namespace headrace::gpu {

template <class T, int kDim>
void run_attention_of(OpContext& context, const AttentionArgs& args) {
  const AttentionPlan& plan = *args.plan;
  const Workspace::Mark mark(context.workspace);
  const auto take = [&](bool needed, int64_t bytes) {
    return needed ? reinterpret_cast<float*>(context.workspace.take(bytes)) : nullptr;
  };
  // Also where this plan merges nothing: a graph captured now may be replayed with one that does.
  float* partials = take(plan.has_decode, decode_partial_bytes(plan.shape));
  float* prefill_partials = take(plan.splits_prompts, prefill_partial_bytes(plan.shape));
  const auto arguments = attention_arguments<T>(args, partials, prefill_partials);
  // Steps with prompts are not captured, so that the plan may say which: the one that can merge is
  // 5 % slower where nothing is split.
  if (plan.splits_prompts) {
    launch_prefill<T, PrefillShape<kDim, true>>(context, args, arguments);
  } else if (plan.has_prefill) {
    launch_prefill<T, PrefillShape<kDim, false>>(context, args, arguments);
  }
  if (!plan.has_decode) return;
  if (decode_tile_rows(plan.shape) == 8) {
    launch_decode<T, DecodeShape<kDim, 8>>(context, args, arguments);
  } else {
    launch_decode<T, DecodeShape<kDim, 16>>(context, args, arguments);
  }
}

template <int kDim>
void run_attention(OpContext& context, const AttentionArgs& args) {
  if (args.q.dtype == DType::kF16) {
    run_attention_of<__half, kDim>(context, args);
  } else {
    run_attention_of<__nv_bfloat16, kDim>(context, args);
  }
}

}  // namespace headrace::gpu
