// Pages of bytes as pages of 16-bit elements, 8-bit floats exactly, integers times their scale
// rounded: what prefill tiles read of a layer.
// Once a page for all the tiles of its sequence, before them: 3 bytes move a component, where a
// tile's products take a multiple of that time. Sequences that share a page write the same to it.
#pragma once

#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/page.cuh"
#include "ops/attention/page_numbers.cuh"

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

// Two numbers of a pair of F16 as elements.
template <class T, PageNumbers kNumbers>
__device__ __forceinline__ uint32_t unpacked_pair(uint32_t pair, float scale) {
  const float2 numbers = __half22float2(reinterpret_cast<const __half2&>(pair));
  if constexpr (!ByteNumbers<kNumbers>::kScaled) return packed<T>(numbers.x, numbers.y);
  return packed<T>(numbers.x * scale, numbers.y * scale);
}

// 16 components of a token a thread at a time.
template <class T, PageNumbers kNumbers>
__device__ void unpack_page(const UnpackKvArguments<T>& args, int32_t block) {
  using Numbers = ByteNumbers<kNumbers>;
  const int32_t part_units = args.kv_heads * args.head_dim;  // 16 tokens x d / 16 columns a head
  T* const to = args.unpacked + int64_t{block} * 2 * part_units * kPageTokens;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < 2 * part_units; i += kUnpackThreads) {
    const int32_t part = i / part_units, unit = i % part_units;
    const int32_t head = unit / args.head_dim, within = unit % args.head_dim;
    const std::byte* from = (part == 0 ? args.keys : args.values) + block * args.block_stride +
                            head * Numbers::head_bytes(args.head_dim, kPageTokens);
    const uint4 words = *reinterpret_cast<const uint4*>(from + within * kKvColumn);
    const int32_t column = within / kPageTokens, token = within % kPageTokens;
    const int64_t row = (int64_t{part} * args.kv_heads + head) * kPageTokens + token;
    auto* pairs = reinterpret_cast<uint4*>(to + row * args.head_dim + column * kKvColumn);
    float scale = 1.0f;
    if constexpr (Numbers::kScaled) {
      scale = to_float(Numbers::scales(from, args.head_dim, kPageTokens)[token]);
    }
    const auto four = [&](uint32_t word) -> uint2 {
      const uint2 numbers = Numbers::in_order(word);
      return {unpacked_pair<T, kNumbers>(numbers.x, scale),
              unpacked_pair<T, kNumbers>(numbers.y, scale)};
    };
    const uint2 a = four(words.x), b = four(words.y), c = four(words.z), d = four(words.w);
    pairs[0] = {a.x, a.y, b.x, b.y};
    pairs[1] = {c.x, c.y, d.x, d.y};
  }
}

template <class T, PageNumbers kNumbers>
__global__ void __launch_bounds__(kUnpackThreads) unpack_kv(UnpackKvArguments<T> args) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto& header = *reinterpret_cast<const AttentionPlanHeader*>(args.plan);
  const auto* run = reinterpret_cast<const AttentionPageRun*>(args.plan + header.runs_first);
  for (int32_t i = static_cast<int32_t>(blockIdx.x); i < header.run_pages; i += gridDim.x) {
    while (i - run->before >= run->page_count) ++run;
    unpack_page<T, kNumbers>(args, run->block_table[run->page_first + i - run->before]);
  }
}

// The pages of the plan's prefill tiles, to `args.kv.unpacked`.
template <class T, PageNumbers kNumbers>
void launch_unpack_of(OpContext& context, const AttentionArgs& args) {
  const KvLayerView& kv = args.kv;
  launch(context, unpack_kv<T, kNumbers>,
         static_cast<unsigned>(kUnpackBlocksPerSm * args.plan->shape.sm_count), kUnpackThreads,
         UnpackKvArguments<T>{.keys = kv.base,
                              .values = kv.base + kv.v_offset,
                              .block_stride = kv.block_stride,
                              .unpacked = reinterpret_cast<T*>(kv.unpacked),
                              .kv_heads = kv.kv_heads,
                              .head_dim = kv.k_dim,
                              .plan = args.plan->device});
}
template <class T>
void launch_unpack(OpContext& context, const AttentionArgs& args) {
  with_page_numbers(args.kv, [&](auto numbers) {
    if constexpr (numbers.value != PageNumbers::kPlain) {
      launch_unpack_of<T, numbers.value>(context, args);
    }
  });
}

}  // namespace headrace::gpu
