// The fast attention kernels of one head size, of which each cuda_d<dim>.cu makes the
// instances: bf16 and f16, prefill with and without splits, decode with 8 and 16 rows a tile, of
// pages of these types and of each other kind of numbers. Heads that few models have are made with
// fewer: prefill with splits alone; decode with ALiBi of 8 rows; of values narrower than keys, of
// 16-bit pages.
#pragma once

#include "ops/attention/decode.cuh"
#include "ops/attention/prefill.cuh"
#include "ops/attention/unpack_kv.cuh"

namespace headrace::gpu {

// Of a step that only decodes, whose rows are all in prefill tiles: a launch of its own, so that
// the prefill kernels stay what they are.
template <class T>
__global__ void __launch_bounds__(kWarpgroupThreads)
    attention_clear_padding(AttentionArguments<T> args, int32_t rows) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  clear_padding(args, rows, static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(gridDim.x));
}

// Whether a step of this plan may be padded, and its decodes are not in decode tiles.
inline bool pads_prefill_tiles(const AttentionPlan& plan, int64_t rows) {
  return (plan.shape.batch_invariant || !fits_decode_tiles(plan.shape)) &&
         rows <= plan.shape.sequences_max;
}

template <class T, class Heads>
void run_prefill(OpContext& context, const AttentionArgs& args,
                 const ArgumentsOf<T, Heads>& arguments) {
  AttentionArgs wide = args;
  if constexpr (Heads::kValueDim == Heads::kDim) {
    if (lies_in_columns(args.kv.k_format)) {
      launch_unpack<T>(context, args);
      wide.kv = unpacked_kv(args.kv, args.q.dtype);
    }
  }
  // The one that can merge is 5 % slower where nothing is split. Captured steps have single rows,
  // whose plans say this alike whatever their lengths are.
  if constexpr (Heads::kOrdinary) {
    if (!args.plan->splits_prompts) {
      return launch_prefill<T, PrefillShape<Heads, false>>(context, wide, arguments);
    }
  }
  launch_prefill<T, PrefillShape<Heads, true>>(context, wide, arguments);
}

template <class T, class Heads, PageNumbers kNumbers>
void run_decode(OpContext& context, const AttentionArgs& args,
                const ArgumentsOf<T, Heads>& arguments) {
  if constexpr (!Heads::kAlibi) {
    if (decode_tile_rows(args.plan->shape) == 16) {
      return launch_decode<T, DecodeShape<Heads, 16, kNumbers>>(context, args, arguments);
    }
  }
  launch_decode<T, DecodeShape<Heads, 8, kNumbers>>(context, args, arguments);
}

// Whether there is a kernel of decode over pages of such numbers.
template <class Heads>
constexpr bool decodes(PageNumbers numbers) {
  if (Heads::kValueDim != Heads::kDim) return numbers == PageNumbers::kPlain;
  return numbers != PageNumbers::kInt4 || Heads::kDim % kKvColumnOf4Bits == 0;
}

template <class T, class Heads>
void run_attention_of(OpContext& context, const AttentionArgs& args) {
  const AttentionPlan& plan = *args.plan;
  const Workspace::Mark mark(context.workspace);
  const auto take = [&](bool needed, int64_t bytes) {
    return needed ? reinterpret_cast<float*>(context.workspace.take(bytes)) : nullptr;
  };
  // Also where this plan merges nothing: a graph captured now may be replayed with one that does.
  float* partials = take(plan.has_decode, decode_partial_bytes(plan.shape));
  float* prefill_partials = take(plan.splits_prompts, prefill_partial_bytes(plan.shape));
  const auto arguments = arguments_of<T, Heads>(args, partials, prefill_partials);
  if (plan.has_prefill || plan.splits_prompts) run_prefill<T, Heads>(context, args, arguments);
  if (plan.has_prefill && pads_prefill_tiles(plan, args.q.rows())) {
    launch(context, attention_clear_padding<T>, static_cast<unsigned>(args.q.rows()),
           kWarpgroupThreads, static_cast<const AttentionArguments<T>&>(arguments),
           static_cast<int32_t>(args.out.rows()));
  }
  if (!plan.has_decode) return;
  with_page_numbers(args.kv, [&](auto numbers) {
    if constexpr (decodes<Heads>(numbers.value)) {
      run_decode<T, Heads, numbers.value>(context, args, arguments);
    }
  });
}

template <class Heads>
void run_attention(OpContext& context, const AttentionArgs& args) {
  if (args.q.dtype == DType::kF16) {
    run_attention_of<__half, Heads>(context, args);
  } else {
    run_attention_of<__nv_bfloat16, Heads>(context, args);
  }
}

}  // namespace headrace::gpu
