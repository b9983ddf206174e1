// Pages in 8-bit floats as pages of 16-bit elements, exactly: what prefill tiles read of a layer.
// Once a page for all the tiles of its sequence, before them: 3 bytes move a component, where a
// tile's products take a multiple of that time. Sequences that share a page write the same to it.
#pragma once

#include "gpu/float8.cuh"
#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/page.cuh"

namespace headrace::gpu {

inline constexpr int kUnpackThreads = 256;
inline constexpr int kUnpackBlocksPerSm = 4;

template <class T>
struct UnpackKvArguments {
  const std::byte* keys;  // K part of block 0
  const std::byte* values;
  int64_t block_stride;  // bytes
  T* unpacked;           // [block][keys, values][kv head][token][d]
  int32_t kv_heads, head_dim;
  const std::byte* plan;  // the arena
};

// 16 components of a token a thread at a time.
template <class T>
__device__ void unpack_page(const UnpackKvArguments<T>& args, int32_t block) {
  const int32_t part_units = args.kv_heads * args.head_dim;  // 16 tokens x d / 16 columns a head
  T* const to = args.unpacked + int64_t{block} * 2 * part_units * kPageTokens;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < 2 * part_units; i += kUnpackThreads) {
    const int32_t part = i / part_units, unit = i % part_units;
    const std::byte* from =
        (part == 0 ? args.keys : args.values) + block * args.block_stride + unit * kFp8Column;
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    const int32_t head = unit / args.head_dim, within = unit % args.head_dim;
    const int32_t column = within / kPageTokens, token = within % kPageTokens;
    const int64_t row = (int64_t{part} * args.kv_heads + head) * kPageTokens + token;
    auto* pairs = reinterpret_cast<uint4*>(to + row * args.head_dim + column * kFp8Column);
    const uint2 a = from_e4m3<T>(words.x), b = from_e4m3<T>(words.y);
    const uint2 c = from_e4m3<T>(words.z), d = from_e4m3<T>(words.w);
    pairs[0] = {a.x, a.y, b.x, b.y};
    pairs[1] = {c.x, c.y, d.x, d.y};
  }
}

template <class T>
__global__ void __launch_bounds__(kUnpackThreads) unpack_kv(UnpackKvArguments<T> args) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto& header = *reinterpret_cast<const AttentionPlanHeader*>(args.plan);
  const auto* run = reinterpret_cast<const AttentionPageRun*>(args.plan + header.runs_first);
  for (int32_t i = static_cast<int32_t>(blockIdx.x); i < header.run_pages; i += gridDim.x) {
    while (i - run->before >= run->page_count) ++run;
    unpack_page(args, run->block_table[run->page_first + i - run->before]);
  }
}

// The pages of the plan's prefill tiles, to `args.kv.unpacked`.
template <class T>
void launch_unpack(OpContext& context, const AttentionArgs& args) {
  const KvLayerView& kv = args.kv;
  launch(context, unpack_kv<T>,
         static_cast<unsigned>(kUnpackBlocksPerSm * args.plan->shape.sm_count), kUnpackThreads,
         UnpackKvArguments<T>{.keys = kv.base,
                              .values = kv.base + kv.v_offset,
                              .block_stride = kv.block_stride,
                              .unpacked = reinterpret_cast<T*>(kv.unpacked),
                              .kv_heads = kv.kv_heads,
                              .head_dim = kv.k_dim,
                              .plan = args.plan->device});
}

}  // namespace headrace::gpu
