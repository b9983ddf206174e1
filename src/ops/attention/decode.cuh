// Attention of few rows over many keys: Flash-Decoding (Dao et al. 2023) with the query heads of a
// key head as the columns of one tensor-core tile. The cost is reading the cache once.
//
// A thread block takes one item (tile, key head) after the other, longest first: two that it is
// given (second_decode_item), then what a counter hands out. Its warps share out the
// pages of the tile's keys, page i to warp i % kWarps, and work on their own: each keeps kStages
// pages on the way into its ring in shared memory (one lane starts the copies) and folds each page
// that has arrived into its softmax state. The stream of pages goes on into the next item while
// this one's end is computed:
//   S' [16 keys, rows] = K q'        keys and components are the long sides of both products, so
//   O' [d, rows]      += V' P'       that 8 rows fill a tile of the tensor cores
// Then the warps' states are merged. The last thread block to finish a split of some rows merges
// the splits, always in the same order.
//
// Where queries and the newest keys come from is a policy, Rows: StoredRows, or RopeRows
// (decode_rope.cuh). What pages are made of is another (decode_pages.cuh).
#pragma once

#include "gpu/mma.cuh"
#include "gpu/tma.cuh"
#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/decode_items.h"
#include "ops/attention/decode_pages.cuh"
#include "ops/attention/softmax.cuh"

namespace headrace::gpu {

template <class Heads, int kTileRows, PageNumbers kPageNumbers = PageNumbers::kPlain>
struct DecodeShape {
  static constexpr int kDim = Heads::kDim, kValueDim = Heads::kValueDim;
  static constexpr bool kAlibi = Heads::kAlibi;
  static constexpr int kRows = kTileRows;
  static constexpr PageNumbers kNumbers = kPageNumbers;
  static constexpr bool kPlain = kNumbers == PageNumbers::kPlain;
  static constexpr int kPageBytes = decode_page_bytes<kDim, kNumbers>();
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocksPerSm = kDim <= 128 ? 2 : 1;
  // For barriers and single values, which take 105 or less of 16 bits, of which with 512 d 128
  // would have two stages; 8 x 4 a stage of which there are most.
  static constexpr int kSpareBytes = kPlain ? 256 : 512;
  static constexpr int kStagesMax = (kSpareBytes - 16) / (8 * 4);
  static constexpr int kStride = kValueDim + 4;  // floats between rows of sums: no bank conflicts
  static constexpr int kMergeBytes = kWarps * kRows * (kStride + 2) * 4;
  static constexpr int kStageBytes = kWarps * 2 * kPageBytes;
  // Of the 228 KB that the thread blocks of a multiprocessor share, 1 KB is the system's a block.
  static constexpr int kAvailable = (228 / kBlocksPerSm - 1) * 1024 - kMergeBytes - kSpareBytes;
  static constexpr int kStages =
      kAvailable / kStageBytes < kStagesMax ? kAvailable / kStageBytes : kStagesMax;
  static_assert(kStages >= 2);
};

template <class T, class Shape>
using DecodePages = PagesOf<T, Shape::kDim, Shape::kValueDim, Shape::kNumbers>;

template <class Shape>
struct alignas(1024) DecodeShared {
  std::byte ring[Shape::kWarps][Shape::kStages][2][Shape::kPageBytes];  // keys, values
  float sums[Shape::kWarps][Shape::kRows][Shape::kStride];
  float origin[Shape::kWarps][Shape::kRows];
  float total[Shape::kWarps][Shape::kRows];
  Barrier arrived[Shape::kWarps][Shape::kStages];
  int32_t after_next;  // an item
  bool merges;
};

// The pages of one item that a warp of kWarps loads, in order.
template <int kWarps>
struct PageCursor {
  const int32_t* table = nullptr;  // of the warp's first page; the next is kWarps further
  int32_t head = 0;
  int32_t count = 0;
  int32_t next = 0;    // to load
  int32_t blocks = 0;  // lane l: of page next / 32 * 32 + l

  __device__ static PageCursor of(const AttentionTileWork& tile, int32_t head, int warp) {
    const int32_t pages = (tile.key_last - tile.key_first + kPageTokens - 1) / kPageTokens;
    return {.table = tile.block_table + tile.key_first / kPageTokens + warp,
            .head = head,
            .count = pages > warp ? (pages - warp + kWarps - 1) / kWarps : 0};
  }
  __device__ void read_blocks(int lane) {
    blocks = next + lane < count ? table[(next + lane) * kWarps] : 0;
  }
  __device__ bool done() const { return next == count; }
};

// One warp's part of the items: its ring, and its softmax state.
template <class T, class Shape>
class DecodeWarp {
  static constexpr int kDim = Shape::kDim, kRows = Shape::kRows;
  using Pages = DecodePages<T, Shape>;
  using Operand = typename Pages::Operand;
  using Source = typename Pages::Source;
  using Shared = DecodeShared<Shape>;
  static constexpr int kRowTiles = kRows / 8;
  static constexpr int kSteps = kDim / 16, kValueSteps = Shape::kValueDim / 16;
  static constexpr float kSlack = 8.0f;  // weights are at most 2^8, which fits the 16-bit types
  using Cursor = PageCursor<Shape::kWarps>;

 public:
  __device__ DecodeWarp(Shared& shared, const Source& source)
      : shared_(shared),
        source_(source),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        pages_(lane_) {}

  // The first item's pages.
  __device__ void open(const AttentionTileWork& tile, int32_t head) {
    loading_ = Cursor::of(tile, head, warp_);
    loading_.read_blocks(lane_);
    load_pages();
  }

  // Folds this warp's pages, each once `rows` has completed it. `next`: the item after this one,
  // whose first pages are on the way when this returns, or null.
  template <class Rows>
  __device__ void attend(const AttentionArguments<T>& args, const AttentionTileWork& tile,
                         int32_t head, const AttentionTileWork* next, int32_t next_head,
                         const Rows& rows) {
    const int32_t count = Cursor::of(tile, head, warp_).count;
    following_ = next != nullptr ? Cursor::of(*next, next_head, warp_) : Cursor();
    following_.read_blocks(lane_);
    clear_state();
    for (int i = 0; i < count; ++i) {
      barrier().wait(phase_);
      rows.complete_page(tile, i, count, shared_.ring[warp_][stage_]);
      fold(args, tile, i);
      advance();
      load_pages();
    }
    load_pages();
  }

  // q as the B operand: 16 components x 8 rows a step; rows past the tile's end are 0.
  __device__ void load_queries(const ArgumentsOf<T, Shape>& args, const AttentionTileWork& tile,
                               int32_t head) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const int row = r * 8 + lane_ / 4;
      const bool valid = row < tile.row_count * args.group;
      const T* q = args.q.row(tile.row_first + (valid ? row / args.group : 0)) +
                   (head * args.group + row % args.group) * kDim;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        queries_[r][s][0] = queries_[r][s][1] = 0;
        if (valid) Pages::load_query(q, lane_, s, queries_[r][s]);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        last_key_[r][j] = tile.position + column(r, j) / args.group;
        if constexpr (Shape::kAlibi) {
          slopes_[r][j] = args.slopes[head * args.group + column(r, j) % args.group] * kLog2e;
        }
      }
    }
  }

  // The same from rows of shared memory on 16 bytes, `row_bytes` apart, of a tile of one position:
  // those of the group's heads.
  __device__ void take_queries(const AttentionArguments<T>& args, const AttentionTileWork& tile,
                               uint32_t rows, int row_bytes) {
    static_assert(kRowTiles == 1 && kSteps % 2 == 0 && Shape::kPlain);
    const bool valid = lane_ / 4 < args.group;
    const uint32_t lane_part = rows + static_cast<uint32_t>(lane_ % 8 * row_bytes + lane_ / 8 * 16);
#pragma unroll
    for (int s = 0; s < kSteps; s += 2) {
      uint32_t units[4];  // of 8 components
      load_matrices(units, lane_part + s * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) queries_[0][s + i / 2][i % 2] = valid ? units[i] : 0u;
    }
    last_key_[0][0] = last_key_[0][1] = tile.position;
  }

  // Leaves the state of this warp's pages in shared memory.
  __device__ void store_state() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float total = total_[r][j];
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
          total += __shfl_xor_sync(0xffffffffu, total, distance);
        }
        if (lane_ < 4) {
          shared_.origin[warp_][column(r, j)] = origin_[r][j];
          shared_.total[warp_][column(r, j)] = total;
        }
      }
#pragma unroll
      for (int s = 0; s < kValueSteps; ++s) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          shared_.sums[warp_][column(r, j % 2)][Pages::component(lane_, s, j / 2)] = sums_[r][s][j];
        }
      }
    }
  }

 private:
  __device__ Barrier& barrier() { return shared_.arrived[warp_][stage_]; }
  __device__ void advance() {
    __syncwarp();
    --in_flight_;
    if (++stage_ == Shape::kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  __device__ void clear_state() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        origin_[r][j] = -INFINITY;
        total_[r][j] = 0.0f;
      }
#pragma unroll
      for (int s = 0; s < kValueSteps; ++s) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums_[r][s][j] = 0.0f;
      }
    }
  }

  // Starts copies until the ring is full or no page is left of this item and the next.
  __device__ void load_pages() {
    while (in_flight_ < Shape::kStages) {
      if (loading_.done()) {
        loading_ = following_;
        following_ = {};
      }
      if (loading_.done()) return;
      load_page();
    }
  }
  __device__ void load_page() {
    if (loading_.next > 0 && loading_.next % 32 == 0) loading_.read_blocks(lane_);
    const int32_t block = __shfl_sync(0xffffffffu, loading_.blocks, loading_.next % 32);
    if (lane_ == 0) {
      Barrier& arrived = shared_.arrived[warp_][load_stage_];
      arrived.arrive_expecting(Pages::kFetchedBytes);
      Pages::fetch(source_, shared_.ring[warp_][load_stage_], loading_.head, block, arrived);
    }
    load_stage_ = load_stage_ + 1 == Shape::kStages ? 0 : load_stage_ + 1;
    ++loading_.next;
    ++in_flight_;
  }

  // Row number (position, query head) of this thread's column j of row tile r.
  __device__ int column(int r, int j) const { return r * 8 + lane_ % 4 * 2 + j; }

  __device__ void fold(const AttentionArguments<T>& args, const AttentionTileWork& tile, int i) {
    const int32_t first = tile.key_first + (i * Shape::kWarps + warp_) * kPageTokens;
    const auto& stage = shared_.ring[warp_][stage_];
    float scores[kRowTiles][4];
    multiply_keys(shared_address(stage[0]), scores);
    if constexpr (Pages::kScaled) multiply_tokens(pages_.scales(stage[0]), scores);
    scale(args, tile, first, scores);
    float token_weights[kRowTiles][4];
    weigh(scores, token_weights);
    const int32_t valid = tile.key_last - first;
    if constexpr (Pages::kScaled) {
      multiply_tokens(written_scales(stage[1], valid), token_weights);
    }
    uint32_t weights[kRowTiles][2];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      weights[r][0] = transposed(packed<Operand>(token_weights[r][0], token_weights[r][1]));
      weights[r][1] = transposed(packed<Operand>(token_weights[r][2], token_weights[r][3]));
    }
    multiply_values(shared_address(stage[1]), valid, weights);
  }

  // Those of a page of values, of which `valid` tokens are keys: what lies behind them was never
  // written, and 0 x NaN is NaN.
  __device__ float2 written_scales(const std::byte* page, int32_t valid) const {
    const float2 scales = pages_.scales(page);
    const int token = lane_ / 4;
    return {token < valid ? scales.x : 0.0f, token + 8 < valid ? scales.y : 0.0f};
  }
  // `factors`: of tokens lane / 4 and lane / 4 + 8.
  __device__ static void multiply_tokens(const float2& factors, float (&tile)[kRowTiles][4]) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 4; ++j) tile[r][j] *= j < 2 ? factors.x : factors.y;
    }
  }

  // A product waits for the one that it adds to: one row tile has two sums, that take turns.
  __device__ void multiply_keys(uint32_t page, float (&scores)[kRowTiles][4]) {
    constexpr int kSums = kRowTiles == 1 ? 2 : 1;
    float sums[kSums][kRowTiles][4] = {};
    pages_.for_keys(page, [&](int s, const uint32_t(&a)[4]) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply_add<Operand>(sums[s % kSums][r], a, queries_[r][s][0], queries_[r][s][1]);
      }
    });
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[r][j] = kSums == 1 ? sums[0][r][j] : sums[0][r][j] + sums[kSums - 1][r][j];
      }
    }
  }

  // Products to base-2 scores; what a row may not see is -inf.
  __device__ void scale(const AttentionArguments<T>& args, const AttentionTileWork& tile,
                        int32_t first, float (&scores)[kRowTiles][4]) {
    const bool masked = first + kPageTokens > tile.position + 1 ||
                        first < args.first_key(tile.position + tile.row_count - 1);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[r][j] = args.scores.cap > 0 ? args.scores.capped(scores[r][j])
                                           : scores[r][j] * args.scores.factor;
        if constexpr (Shape::kAlibi) {
          const int32_t key = first + lane_ / 4 + j / 2 * 8;
          const auto distance = static_cast<float>(key - last_key_[r][j % 2]);
          scores[r][j] = fmaf(slopes_[r][j % 2], distance, scores[r][j]);
        }
        if (masked) {
          const int32_t key = first + lane_ / 4 + j / 2 * 8;
          const int32_t last = last_key_[r][j % 2];
          if (key > last || key < args.first_key(last)) scores[r][j] = -INFINITY;
        }
      }
    }
  }

  // Scores to weights. They are relative to an origin that follows the largest score, but only once
  // that is higher by kSlack: most pages then need neither the largest of the lanes nor other sums.
  __device__ void weigh(const float (&scores)[kRowTiles][4], float (&weights)[kRowTiles][4]) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      bool higher = false;
#pragma unroll
      for (int j = 0; j < 4; ++j) higher |= scores[r][j] > origin_[r][j % 2] + kSlack;
      if (__any_sync(0xffffffffu, higher)) raise_origins(r, scores[r]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        weights[r][j] = exp2_fast(scores[r][j] - softmax_origin(origin_[r][j % 2]));
        total_[r][j % 2] += weights[r][j];
      }
    }
  }

  // A column's origin depends on its own scores alone: its bits are those it has beside any others.
  __device__ void raise_origins(int r, const float (&scores)[4]) {
    float keep[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float page_largest = fmaxf(scores[j], scores[j + 2]);
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        page_largest = fmaxf(page_largest, __shfl_xor_sync(0xffffffffu, page_largest, distance));
      }
      const float before = origin_[r][j];
      if (page_largest > before + kSlack) origin_[r][j] = page_largest;
      keep[j] = exp2_fast(before - softmax_origin(origin_[r][j]));
      total_[r][j] *= keep[j];
    }
#pragma unroll
    for (int s = 0; s < kValueSteps; ++s) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums_[r][s][j] *= keep[j % 2];
    }
  }

  // `valid`: tokens of the page that are keys. What lies behind them was never written and may be
  // NaN, which a weight of 0 would not hide.
  __device__ void multiply_values(uint32_t page, int32_t valid,
                                  const uint32_t (&weights)[kRowTiles][2]) {
    const int token = lane_ % 4 * 2;
    const uint32_t low = pair_mask(valid - token), high = pair_mask(valid - token - 8);
    pages_.for_values(page, low, high, [&](int s, const uint32_t(&a)[4]) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply_add<Operand>(sums_[r][s], a, weights[r][0], weights[r][1]);
      }
    });
  }
  // Keeps the first `count` of two 16-bit elements.
  __device__ static uint32_t pair_mask(int count) {
    return count >= 2 ? 0xffffffffu : count == 1 ? 0x0000ffffu : 0u;
  }

  Shared& shared_;
  const Source& source_;
  const int warp_, lane_;
  const Pages pages_;

  int stage_ = 0;  // of the page to fold next
  uint32_t phase_ = 0;
  int load_stage_ = 0;  // of the page to load next
  int in_flight_ = 0;   // pages loaded and not folded
  Cursor loading_, following_;

  uint32_t queries_[kRowTiles][kSteps][2];
  int32_t last_key_[kRowTiles][2];  // that a column sees
  float origin_[kRowTiles][2];      // of weights, in base 2; -inf: no key was seen
  float total_[kRowTiles][2];       // of this thread's keys
  float sums_[kRowTiles][kValueSteps][4];
  float slopes_[kRowTiles][2];  // with ALiBi: of scores in base 2
};

// Softmax states of one row and four components, merged one after the other.
struct MergedState {
  float origin = -INFINITY;
  float total = 0.0f;
  float sums[4] = {};

  __device__ void add(float other_origin, float other_total, const float4& other_sums) {
    const float higher = fmaxf(origin, other_origin), finite = softmax_origin(higher);
    const float keep = exp2_fast(origin - finite), take = exp2_fast(other_origin - finite);
    origin = higher;
    total = total * keep + other_total * take;
    sums[0] = sums[0] * keep + other_sums.x * take;
    sums[1] = sums[1] * keep + other_sums.y * take;
    sums[2] = sums[2] * keep + other_sums.z * take;
    sums[3] = sums[3] * keep + other_sums.w * take;
  }
};

// The result of one row and four components.
template <class T>
__device__ void write_row(const AttentionArguments<T>& args, const AttentionTileWork& tile,
                          int32_t head, int row, int d, MergedState state) {
  const int32_t query_head = head * args.group + row % args.group;
  if (args.sinks != nullptr) {
    state.add(args.sinks[query_head] * kLog2e, 1.0f, float4{0.0f, 0.0f, 0.0f, 0.0f});
  }
  const float inverse = 1.0f / state.total;
  T* out = args.out.row(tile.row_first + row / args.group) +
           static_cast<int64_t>(query_head) * args.value_dim + d;
  *reinterpret_cast<uint2*>(out) =
      make_uint2(packed<T>(state.sums[0] * inverse, state.sums[1] * inverse),
                 packed<T>(state.sums[2] * inverse, state.sums[3] * inverse));
}

// Partial results of one (split tile, key head): sums [kRows, d], then origin and total [kRows].
template <int kDim, int kRows>
struct PartialTile {
  float* data;

  template <class T>
  __device__ static PartialTile of(const AttentionArguments<T>& args, const AttentionTileWork& tile,
                                   int32_t split, int32_t head) {
    const int64_t number = static_cast<int64_t>(tile.partial_first + split) * args.kv_heads + head;
    return {args.partials + number * kRows * (kDim + 2)};
  }
  __device__ float4* sums(int row, int d) const {
    return reinterpret_cast<float4*>(data + row * kDim + d);
  }
  __device__ float* origin(int row) const { return data + kRows * kDim + row; }
  __device__ float* total(int row) const { return data + kRows * (kDim + 1) + row; }
};

// Whether this thread block is the last to finish a split of the tile's rows; then every result of
// the others is visible to it. All threads.
template <class T, class Shape>
__device__ bool last_split(const AttentionArguments<T>& args, const AttentionTileWork& tile,
                           int32_t head, DecodeShared<Shape>& shared) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    auto* arrived = reinterpret_cast<uint32_t*>(args.plan + args.header().arrived_first);
    // Wraps to 0 at the last: ready for the next layer.
    const uint32_t before = atomicInc(&arrived[tile.merge * args.kv_heads + head],
                                      static_cast<uint32_t>(tile.split_count - 1));
    shared.merges = before == static_cast<uint32_t>(tile.split_count - 1);
  }
  __syncthreads();
  __threadfence();
  return shared.merges;
}

// Merges what the warps left in shared memory; then, if the rows have several splits, theirs.
template <class T, class Shape>
__device__ void finish_tile(const AttentionArguments<T>& args, const AttentionTileWork& tile,
                            int32_t head, DecodeShared<Shape>& shared) {
  constexpr int kValueDim = Shape::kValueDim, kRows = Shape::kRows;
  constexpr int kPerRow = kValueDim / 4;
  const int items = tile.row_count * args.group * kPerRow;
  const auto part = PartialTile<kValueDim, kRows>::of(args, tile, tile.split, head);
  for (int item = static_cast<int>(threadIdx.x); item < items; item += Shape::kThreads) {
    const int row = item / kPerRow, d = item % kPerRow * 4;
    MergedState state;
#pragma unroll
    for (int w = 0; w < Shape::kWarps; ++w) {
      state.add(shared.origin[w][row], shared.total[w][row],
                *reinterpret_cast<const float4*>(&shared.sums[w][row][d]));
    }
    if (tile.split_count == 1) {
      write_row(args, tile, head, row, d, state);
    } else {
      *part.sums(row, d) = {state.sums[0], state.sums[1], state.sums[2], state.sums[3]};
      if (d == 0) {
        *part.origin(row) = state.origin;
        *part.total(row) = state.total;
      }
    }
  }
  if (tile.split_count == 1 || !last_split(args, tile, head, shared)) return;
  for (int item = static_cast<int>(threadIdx.x); item < items; item += Shape::kThreads) {
    const int row = item / kPerRow, d = item % kPerRow * 4;
    MergedState state;
#pragma unroll 8
    for (int split = 0; split < tile.split_count; ++split) {
      const auto other = PartialTile<kValueDim, kRows>::of(args, tile, split, head);
      state.add(__ldcg(other.origin(row)), __ldcg(other.total(row)), __ldcg(other.sums(row, d)));
    }
    write_row(args, tile, head, row, d, state);
  }
}

// Queries that an earlier kernel has made, keys and values that are all in the cache.
template <class T, class Shape>
class StoredRows {
 public:
  struct Arguments {};

  __device__ StoredRows(DecodeShared<Shape>&, const ArgumentsOf<T, Shape>& args, const Arguments&)
      : args_(args) {}

  // Until pages, and then queries, may be read. wait_for_rows() of all that writes anything.
  __device__ static void wait_for_pages(const Arguments&) { wait_for_earlier_kernels(); }
  __device__ static void wait_for_rows() {}
  // The first item: open(), a barrier of the block, begin(). All threads, as all of these.
  __device__ void open(DecodeWarp<T, Shape>& warp, const AttentionTileWork& tile, int32_t head) {
    warp.load_queries(args_, tile, head);
  }
  __device__ void begin(DecodeWarp<T, Shape>&, const AttentionTileWork&) {}
  // The item after this one: before its pages are asked for, after this one's are folded, and after
  // this one is done.
  __device__ void fetch(const AttentionTileWork&, int32_t) {}
  __device__ void follow(DecodeWarp<T, Shape>& warp, const AttentionTileWork& next, int32_t head) {
    warp.load_queries(args_, next, head);
  }
  __device__ void turn(DecodeWarp<T, Shape>&, const AttentionTileWork&, int32_t) {}
  // Page i of the warp's `count` has arrived in `page`: keys, values.
  template <class Stage>
  __device__ void complete_page(const AttentionTileWork&, int, int, Stage&) const {}

 private:
  const ArgumentsOf<T, Shape>& args_;
};

template <class T, class Shape, class Rows>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    attention_decode(const __grid_constant__ typename DecodePages<T, Shape>::Source source,
                     ArgumentsOf<T, Shape> args, typename Rows::Arguments rows_args,
                     int32_t out_rows) {
  extern __shared__ __align__(1024) std::byte dynamic[];
  auto& shared = *reinterpret_cast<DecodeShared<Shape>*>(dynamic);
  constexpr int kBarriers = Shape::kWarps * Shape::kStages;
  for (int i = static_cast<int>(threadIdx.x); i < kBarriers; i += blockDim.x) {
    (&shared.arrived[0][0])[i].init(1);
    fence_barrier_init();
  }
  if (threadIdx.x == 0) DecodePages<T, Shape>::prefetch(source);
  AttentionPlanHeader& header = args.header();
  const AttentionTileWork* tiles = args.decode_tiles();
  int32_t item = static_cast<int32_t>(blockIdx.x);
  const int32_t items = header.decode_count * args.kv_heads;
  const auto blocks = static_cast<int32_t>(gridDim.x);
  // Blocks without work leave their place to the next kernel. The first stays, so that this kernel
  // never ends before those it waits for.
  if (item >= max(items, 1)) return;
  AttentionTileWork tile{};
  if (item < items) tile = tiles[item / args.kv_heads];
  __syncthreads();
  let_next_kernel_start();
  Rows::wait_for_pages(rows_args);

  DecodeWarp<T, Shape> warp(shared, source);
  Rows rows(shared, args, rows_args);
  int32_t head = item % args.kv_heads;
  if (item < items) warp.open(tile, head);
  Rows::wait_for_rows();
  clear_padding(args, out_rows, item, min(blocks, max(items, 1)));
  if (item < items) rows.open(warp, tile, head);
  __syncthreads();
  if (item < items) rows.begin(warp, tile);
  const bool shares = items > 2 * blocks;
  for (int32_t next = second_decode_item(item, blocks); item < items;) {
    // The number is not needed before this item ends: nobody waits for it here.
    uint32_t taken = 0;
    if (shares && threadIdx.x == 0) taken = atomicAdd(&header.decode_next, 1u);
    const int32_t next_number = next / args.kv_heads, next_head = next % args.kv_heads;
    const AttentionTileWork* next_tile = next < items ? &tiles[next_number] : nullptr;
    if (next_tile != nullptr) rows.fetch(*next_tile, next_head);
    warp.attend(args, tile, head, next_tile, next_head, rows);
    if (next_tile != nullptr) rows.follow(warp, *next_tile, next_head);
    warp.store_state();
    if (threadIdx.x == 0) shared.after_next = 2 * blocks + static_cast<int32_t>(taken);
    __syncthreads();
    const int32_t after_next = shared.after_next;
    finish_tile<T, Shape>(args, tile, head, shared);
    __syncthreads();
    item = next;
    head = next_head;
    next = after_next;
    if (next_tile != nullptr) {
      tile = *next_tile;
      rows.turn(warp, tile, head);
    }
  }
  if (shares && threadIdx.x == 0) release_items(header.decode_next, header.decode_done);
}

template <class T, class Shape, class Rows = StoredRows<T, Shape>>
void launch_decode(OpContext& context, const AttentionArgs& args,
                   const ArgumentsOf<T, Shape>& arguments,
                   const typename Rows::Arguments& rows_arguments = {}) {
  constexpr int kBytes = sizeof(DecodeShared<Shape>);
  static_assert((kBytes + 1024) * Shape::kBlocksPerSm <= 228 * 1024);
  check_launch(context.stream,
               launch_overlapped(attention_decode<T, Shape, Rows>,
                                 {.blocks = static_cast<unsigned>(Shape::kBlocksPerSm *
                                                                  args.plan->shape.sm_count),
                                  .threads = Shape::kThreads,
                                  .shared_bytes = kBytes},
                                 stream_of(context), DecodePages<T, Shape>::source(args.kv),
                                 arguments, rows_arguments, static_cast<int32_t>(args.out.rows())));
}

}  // namespace headrace::gpu
