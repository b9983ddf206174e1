// What the attention kernels on CUDA share: arguments as they see them, the rows of a tile, the
// place of a key in the cache.
#pragma once

#include <type_traits>

#include "ops/attention/plan.h"
#include "ops/attention/softmax.cuh"
#include "ops/cuda_launch.cuh"

namespace headrace::gpu {

// The heads that an instance of the fast kernels is made for.
template <int kHeadDim, int kValueHeadDim = kHeadDim, bool kHasSlopes = false>
struct HeadShape {
  static constexpr int kDim = kHeadDim;            // of queries and keys
  static constexpr int kValueDim = kValueHeadDim;  // of values
  static constexpr bool kAlibi = kHasSlopes;       // whether there are AttentionArgs::slopes
  static constexpr bool kOrdinary = kDim == kValueDim && !kAlibi;
  static_assert(kValueDim <= kDim);
};

template <class T>
struct AttentionArguments {
  RowsOf<const T> q;  // [T, Hq d]
  RowsOf<T> out;
  const T* keys;         // K part of block 0: [kv head][token][d]
  const T* values;       // V part of block 0
  int64_t block_stride;  // elements
  int32_t block_tokens;
  int32_t kv_heads, group, value_dim;  // group: query heads of a key head
  int32_t head_dim;                    // of queries and keys
  float scale;
  float soft_cap;     // 0 = none
  ScoreScale scores;  // both, in base 2
  // > 0: a row sees that many keys; < 0: those of its own run of -window positions; 0: all. One
  // number for both: with one more of them the prefill kernels spill.
  int32_t window;
  const float* sinks;  // [Hq] or null
  std::byte* plan;     // the arena
  float* partials;     // [split tile, kv head] x PartialTile (decode.cuh)
  // [split tile, kv head, warpgroup that computes] x its threads' sums and softmax state
  float* prefill_partials;

  __device__ AttentionPlanHeader& header() const {
    return *reinterpret_cast<AttentionPlanHeader*>(plan);
  }
  __device__ const AttentionTileWork* decode_tiles() const {
    return reinterpret_cast<const AttentionTileWork*>(plan + sizeof(AttentionPlanHeader));
  }
  __device__ const AttentionTileWork* prefill_tiles() const {
    return reinterpret_cast<const AttentionTileWork*>(plan + header().prefill_first);
  }
  // Elements from block 0 to the key or value, of `dim` components, of one head at a position of a
  // sequence.
  __device__ int64_t token_offset(const int32_t* block_table, int32_t position, int32_t head,
                                  int32_t dim) const {
    const int32_t block = block_table[position / block_tokens];
    const int32_t token = position % block_tokens;
    return block * block_stride + (static_cast<int64_t>(head) * block_tokens + token) * dim;
  }
  // Components from one token's value to the next one's. Values that are parts of keys lie as
  // these.
  __device__ int32_t value_step() const { return values == keys ? head_dim : value_dim; }
  // The first key that a row at `position` sees.
  __device__ int32_t first_key(int32_t position) const {
    if (window < 0) return position / -window * -window;
    return window > 0 ? max(0, position + 1 - window) : 0;
  }
};

// Those of kernels with ALiBi.
template <class T>
struct AlibiArguments : AttentionArguments<T> {
  const float* slopes;  // [Hq] or null
};
template <class T, class Shape>
using ArgumentsOf = std::conditional_t<Shape::kAlibi, AlibiArguments<T>, AttentionArguments<T>>;

// A recorded step has rows behind those of its sequences. They become zero: what the kernels after
// attention make of them is a number, and no memory of another step reaches them. `rows`: all of
// out's (not of the arguments: with one more of them the prefill kernels spill). By block `block`
// of `blocks`, after the kernels before have ended.
template <class T>
__device__ __forceinline__ void clear_padding(const AttentionArguments<T>& args, int32_t rows,
                                              int32_t block, int32_t blocks) {
  constexpr auto kWidth = static_cast<int32_t>(kAccessBytes / sizeof(T));
  const int32_t columns = args.group * args.kv_heads * args.value_dim;
  for (int32_t row = args.header().row_count + block; row < rows; row += blocks) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x) * kWidth; i < columns;
         i += static_cast<int32_t>(blockDim.x) * kWidth) {
      *reinterpret_cast<uint4*>(args.out.row(row) + i) = uint4{0, 0, 0, 0};
    }
  }
}

// At the end of a kernel whose thread blocks took items from `next`: the last block to end puts
// both counters back to 0, ready for the next launch. One thread of each block.
__device__ __forceinline__ void release_items(uint32_t& next, uint32_t& done) {
  if (atomicAdd(&done, 1u) + 1 == gridDim.x) {
    next = 0;
    done = 0;
  }
}

// `partials`, `prefill_partials`: from the workspace, or null where the plan has no decode tiles
// and does not split prompts.
template <class T>
AttentionArguments<T> attention_arguments(const AttentionArgs& args, float* partials,
                                          float* prefill_partials) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const KvLayerView& kv = args.kv;
  return {.q = rows_of<T>(args.q),
          .out = rows_of<T>(args.out),
          .keys = reinterpret_cast<const T*>(kv.base),
          .values = reinterpret_cast<const T*>(kv.base + (kv.v_aliases_k ? 0 : kv.v_offset)),
          .block_stride = kv.block_stride / kBytes,
          .block_tokens = kv.block_tokens,
          .kv_heads = kv.kv_heads,
          .group = static_cast<int32_t>(args.q.columns() / kv.k_dim / kv.kv_heads),
          .value_dim = kv.v_dim,
          .head_dim = kv.k_dim,
          .scale = args.scale,
          .soft_cap = args.soft_cap,
          .scores = ScoreScale::of(args.scale, args.soft_cap),
          .window = args.chunk > 0 ? -args.chunk : args.window,
          .sinks = args.sinks,
          .plan = args.plan->device,
          .partials = partials,
          .prefill_partials = prefill_partials};
}
template <class T, class Shape>
ArgumentsOf<T, Shape> arguments_of(const AttentionArgs& args, float* partials,
                                   float* prefill_partials) {
  const auto arguments = attention_arguments<T>(args, partials, prefill_partials);
  if constexpr (Shape::kAlibi) {
    return {arguments, args.slopes};
  } else {
    return arguments;
  }
}

}  // namespace headrace::gpu
