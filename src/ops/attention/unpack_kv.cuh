// Pages in columns as pages of 16-bit elements, 8-bit floats exactly, integers times their scale
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

// 16 bytes of a token a thread at a time: a column.
template <class T, PageNumbers kNumbers>
__device__ void unpack_page(const UnpackKvArguments<T>& args, int32_t block) {
  using Numbers = ColumnNumbers<kNumbers>;
  constexpr int kWord = Numbers::kWordNumbers;
  const int32_t head_units = args.head_dim / Numbers::kColumn * kPageTokens;
  const int32_t part_units = args.kv_heads * head_units;
  T* const to = args.unpacked + int64_t{block} * 2 * args.kv_heads * args.head_dim * kPageTokens;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < 2 * part_units; i += kUnpackThreads) {
    const int32_t part = i / part_units, unit = i % part_units;
    const int32_t head = unit / head_units, within = unit % head_units;
    const int32_t column = within / kPageTokens, token = within % kPageTokens;
    const std::byte* from = (part == 0 ? args.keys : args.values) + block * args.block_stride +
                            head * Numbers::head_bytes(args.head_dim, kPageTokens);
    const uint4 words = *reinterpret_cast<const uint4*>(from + within * kKvColumn);
    const int64_t row = (int64_t{part} * args.kv_heads + head) * kPageTokens + token;
    float scale = 1.0f;
    if constexpr (Numbers::kScaled) {
      scale = to_float(Numbers::scales(from, args.head_dim, kPageTokens)[token]);
    }
    Vector<T, kWord> elements;
    T* at = to + row * args.head_dim + column * Numbers::kColumn;
    for (const uint32_t word : {words.x, words.y, words.z, words.w}) {
      float numbers[kWord];
      Numbers::load_word(word, numbers);
#pragma unroll
      for (int n = 0; n < kWord; ++n) {
        elements.values[n] = from_float<T>(Numbers::kScaled ? numbers[n] * scale : numbers[n]);
      }
      elements.store(at);
      at += kWord;
    }
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
