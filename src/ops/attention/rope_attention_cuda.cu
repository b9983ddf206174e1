// rope_attention on CUDA: the table of kernels that make their own rows.
#include <array>

#include "ops/attention/plan.h"
#include "ops/attention/rope_attention.h"
#include "ops/cuda_launch.cuh"

namespace headrace {

void rope_attention_cuda_d64(OpContext& context, const RopeAttentionArgs& args);
void rope_attention_cuda_d128(OpContext& context, const RopeAttentionArgs& args);
void rope_attention_cuda_d256(OpContext& context, const RopeAttentionArgs& args);

namespace {

// Steps in which every sequence has one row, of 16-bit heads that rotate as a whole, by halves;
// up to 8 query heads a key head; rows, angles and pages on 16 bytes.
template <int32_t kDim>
bool decode(const DeviceTraits& traits, const RopeAttentionArgs& args) {
  const RopeKvArgs& rope = args.rope;
  const KvLayerView& kv = rope.kv;
  const AttentionPlan* plan = args.attention.plan;
  const auto on_access = [](const void* address) { return gpu::multiple_of_access(address); };
  return traits.kind == DeviceKind::kCuda && traits.compute_capability == 90 && plan != nullptr &&
         plan->only_single_rows && args.attention.slopes == nullptr && !plan->rows_meet &&
         decode_tile_rows(plan->shape) == 8 && kv.keys == KeyLayout::kRows &&
         alike_and_plain(kv, rope.qkv.dtype) && kv.k_format != KvFormat::kF32 && kv.k_dim == kDim &&
         kv.block_tokens == 16 && rope.style == RopeStyle::kHalf &&
         rope.cos.columns() == kDim / 2 && gpu::rows_aligned(rope.qkv) &&
         gpu::rows_aligned(args.attention.out) && gpu::rows_aligned(rope.cos) &&
         gpu::rows_aligned(rope.sin) && on_access(rope.q_norm) && on_access(rope.k_norm) &&
         on_access(kv.base) && kv.block_stride % gpu::kAccessBytes == 0 &&
         kv.v_offset % gpu::kAccessBytes == 0;
}

// Where it is ahead (an H200): 8B 4.57 -> 4.41 ms at one row, 4.01 -> 3.92 at 4 and 4.35 -> 4.27 at
// 8 between products that start as it ends (linear/gemv.h), 1 % slower beyond; SmolLM2 6 % at 8
// rows, 10 % at 64.
constexpr int64_t rows_ahead(int32_t dim) { return dim == 64 ? 64 : dim == 128 ? 8 : 2; }

template <int32_t kDim>
bool few_rows(const DeviceTraits& traits, const RopeAttentionArgs& args) {
  return args.rope.qkv.rows() <= rows_ahead(kDim) && decode<kDim>(traits, args);
}

template <int32_t kDim>
constexpr auto by_name(std::string_view name, void (*run)(OpContext&, const RopeAttentionArgs&)) {
  return Kernel<RopeAttentionArgs>{name, decode<kDim>, run, Selection::kByName};
}

constexpr std::array kKernels = {
    Kernel<RopeAttentionArgs>{"rope_attention/cuda/d64", few_rows<64>, rope_attention_cuda_d64},
    Kernel<RopeAttentionArgs>{"rope_attention/cuda/d128", few_rows<128>, rope_attention_cuda_d128},
    Kernel<RopeAttentionArgs>{"rope_attention/cuda/d256", few_rows<256>, rope_attention_cuda_d256},
    by_name<64>("rope_attention/cuda/d64_any_rows", rope_attention_cuda_d64),
    by_name<128>("rope_attention/cuda/d128_any_rows", rope_attention_cuda_d128),
    by_name<256>("rope_attention/cuda/d256_any_rows", rope_attention_cuda_d256),
};

}  // namespace

KernelTable<RopeAttentionArgs> rope_attention_cuda_kernels() { return kKernels; }

}  // namespace headrace
