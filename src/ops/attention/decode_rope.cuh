// Decode attention that makes its own rows: queries, and the newest key and value, come from the
// qkv product as it left them. Each thread block rotates the query heads of its key head; the block
// whose keys end with the newest one also rotates that key, puts key and value into the page that
// it attends, and stores them in the cache. So the kernel rope_kv, which would do it before, is not
// launched.
//
// Heads are rotated by as many lanes as in rope_kv (rope_kv_lanes.cuh), with the same bits. From
// there they go to the fragments of the warps through the memory of the sums, which is free between
// the end of one item and the end of the next one's pages.
#pragma once

#include "gpu/reduce.cuh"
#include "ops/attention/decode.cuh"
#include "ops/attention/rope_attention.h"
#include "ops/attention/rope_kv_lanes.cuh"

namespace headrace::gpu {

// One query position a tile, up to 8 query heads a key head.
template <class T, class Shape>
class RopeRows {
  static constexpr int kDim = Shape::kDim;
  static constexpr int kLanes = kDim / kRopeLaneElements;
  static constexpr int kHeads = Shape::kThreads / kLanes;  // that the threads hold at a time
  static constexpr int kTurns = (Shape::kRows + 2 + kHeads - 1) / kHeads;
  using Lane = RopeLane<T, kLanes>;
  using Warp = DecodeWarp<T, Shape>;
  using P = Page<kDim>;
  static_assert(Shape::kRows == 8 && Shape::kThreads % kLanes == 0);

  // In a warp's part of the sums, until it leaves its state there.
  struct Staged {
    T queries[Shape::kRows][kDim + kRopeLaneElements];  // a unit more: no bank conflicts
    T newest[2][kDim];                                  // key, value; of the warp with their page
  };
  static_assert(sizeof(Staged) <= sizeof(DecodeShared<Shape>::sums[0]));
  static_assert(sizeof(DecodeShared<Shape>::sums[0]) % kAccessBytes == 0);

 public:
  struct Arguments {
    RowsOf<const float> cos, sin;
    const float* q_norm;  // [d] or null, as k_norm
    const float* k_norm;
    float norm_eps;
    T* keys;              // K part of block 0
    T* values;            // V part of block 0
    bool old_is_written;  // before the kernels that run: block tables, and all keys but the newest
  };

  __device__ RopeRows(DecodeShared<Shape>& shared, const AttentionArguments<T>& args,
                      const Arguments& rope)
      : shared_(shared),
        args_(args),
        rope_(rope),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % kLanes) {}

  __device__ static void wait_for_pages(const Arguments& rope) {
    if (!rope.old_is_written) wait_for_earlier_kernels();
  }
  __device__ static void wait_for_rows() { wait_for_earlier_kernels(); }

  __device__ void open(Warp&, const AttentionTileWork& tile, int32_t head) {
    fetch(tile, head);
    stage(tile, head);
  }
  __device__ void begin(Warp& warp, const AttentionTileWork& tile) {
    const Staged& own = staged(thread_ / kWarpThreads);
    warp.take_queries(args_, tile, shared_address(own.queries), sizeof(own.queries[0]));
  }
  // Starts to load what this thread rotates of a tile: it waits in registers until turn().
  __device__ void fetch(const AttentionTileWork& tile, int32_t head) {
    const T* row = args_.q.row(tile.row_first) + lane_ * kRopeLaneElements;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      fetched_[i] = Lane::Elements::load(row + source_head(i, head) * kDim);
    }
    angles_ =
        Lane::Angles::load(rope_.cos.row(tile.row_first), rope_.sin.row(tile.row_first), lane_);
    block_ = tile.block_table[tile.position / kPageTokens];
  }
  __device__ void follow(Warp&, const AttentionTileWork&, int32_t) {}
  __device__ void turn(Warp& warp, const AttentionTileWork& tile, int32_t head) {
    stage(tile, head);
    __syncthreads();
    begin(warp, tile);
  }

  // The newest key and value take their places in the page.
  template <class Stage>
  __device__ void complete_page(const AttentionTileWork& tile, int i, int count,
                                Stage& page) const {
    const int warp = thread_ / kWarpThreads;
    if (i + 1 != count || warp != newest_warp(tile)) return;
    const Staged& own = staged(warp);
    const int token = tile.position % kPageTokens;
    for (int unit = thread_ % kWarpThreads; unit < 2 * kLanes; unit += kWarpThreads) {
      const int part = unit / kLanes, d = unit % kLanes * kRopeLaneElements;
      std::byte* to = page[part] + P::at(P::lane_part(token, d % 16), d / 16 * 16);
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&own.newest[part][d]);
    }
    fence_async_proxy();  // a copy into this page of the ring comes later
    __syncwarp();
  }

 private:
  // Heads in the order of the threads: the group's query heads, then the key, then the value.
  __device__ int head_of(int i) const { return thread_ / kLanes + i * kHeads; }
  // The number in a row of qkv; threads without a head read the first.
  __device__ int64_t source_head(int i, int32_t head) const {
    const int own = head_of(i);
    if (own < args_.group || own >= args_.group + 2) {
      return head * args_.group + (own < args_.group ? own : 0);
    }
    return own * args_.kv_heads + head;  // the keys begin behind group * kv_heads
  }
  // The warp with the page of the newest key, -1: another split has it.
  __device__ static int newest_warp(const AttentionTileWork& tile) {
    return tile.key_last > tile.position
               ? (tile.position - tile.key_first) / kPageTokens % Shape::kWarps
               : -1;
  }
  __device__ Staged& staged(int warp) const {
    return *reinterpret_cast<Staged*>(&shared_.sums[warp][0][0]);
  }

  // Rotates what was fetched: queries for every warp, key and value for the one with their page and
  // for the cache.
  __device__ void stage(const AttentionTileWork& tile, int32_t head) {
    const int newest = newest_warp(tile);
    const int at = lane_ * kRopeLaneElements;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int own = head_of(i);
      const bool is_query = own < args_.group, is_value = own == args_.group + 1;
      Lane::turn(fetched_[i], lane_, angles_, rope_.q_norm != nullptr,
                 is_query ? rope_.q_norm : rope_.k_norm, rope_.norm_eps, is_value);
      if (is_query) {
#pragma unroll
        for (int warp = 0; warp < Shape::kWarps; ++warp) {
          fetched_[i].store(staged(warp).queries[own] + at);
        }
      } else if (own <= args_.group + 1 && newest >= 0) {
        fetched_[i].store(staged(newest).newest[is_value ? 1 : 0] + at);
        fetched_[i].store((is_value ? rope_.values : rope_.keys) + cache_row(tile, head) + at);
      }
    }
  }
  // Elements from block 0 to the newest key of the head.
  __device__ int64_t cache_row(const AttentionTileWork& tile, int32_t head) const {
    return block_ * args_.block_stride +
           (static_cast<int64_t>(head) * kPageTokens + tile.position % kPageTokens) * kDim;
  }

  DecodeShared<Shape>& shared_;
  const AttentionArguments<T>& args_;
  const Arguments& rope_;
  const int thread_, lane_;
  typename Lane::Elements fetched_[kTurns];
  typename Lane::Angles angles_;
  int32_t block_ = 0;
};

// A recorded step runs after all that was uploaded for it, and after the step before it.
inline bool recording(OpContext& context) {
  cudaStreamCaptureStatus status{};
  check_launch(context.stream, cudaStreamIsCapturing(stream_of(context), &status));
  return status == cudaStreamCaptureStatusActive;
}

template <class T, int kDim>
void launch_rope_decode(OpContext& context, const RopeAttentionArgs& args) {
  using Shape = DecodeShape<HeadShape<kDim>, 8>;
  using Rows = RopeRows<T, Shape>;
  const AttentionArgs& attention = args.attention;
  const RopeKvArgs& rope = args.rope;
  const Workspace::Mark mark(context.workspace);
  auto* partials =
      reinterpret_cast<float*>(context.workspace.take(decode_partial_bytes(attention.plan->shape)));
  launch_decode<T, Shape, Rows>(context, attention,
                                attention_arguments<T>(attention, partials, nullptr),
                                {.cos = rows_of<const float>(rope.cos),
                                 .sin = rows_of<const float>(rope.sin),
                                 .q_norm = rope.q_norm,
                                 .k_norm = rope.k_norm,
                                 .norm_eps = rope.norm_eps,
                                 .keys = reinterpret_cast<T*>(rope.kv.base),
                                 .values = reinterpret_cast<T*>(rope.kv.base + rope.kv.v_offset),
                                 .old_is_written = recording(context)});
}

template <int kDim>
void run_rope_attention(OpContext& context, const RopeAttentionArgs& args) {
  if (args.rope.qkv.dtype == DType::kF16) return launch_rope_decode<__half, kDim>(context, args);
  launch_rope_decode<__nv_bfloat16, kDim>(context, args);
}

}  // namespace headrace::gpu
