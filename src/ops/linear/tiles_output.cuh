// What blocks_tiles.cuh does with the sums of a tile: scales them, adds a bias and what y has, and
// stores them.
#pragma once

#include "gpu/cluster.cuh"
#include "gpu/mma.cuh"
#include "gpu/named_barrier.cuh"
#include "gpu/vector.cuh"
#include "ops/linear/blocks.cuh"
#include "ops/linear/blocks_tiles.h"
#include "ops/linear/tiles_layout.h"

namespace headrace::gpu {

constexpr int kTilesWorkers = kBlocksWideWarps * kWarpThreads;  // threads that multiply
// Tiles of 8 rows whose numbers of y a thread reads at a time: what it stores may be what it reads
// next, as far as a compiler knows.
constexpr int kTilesBatch = 8;
// Named barriers: of all of them, and of the warpgroups.
constexpr int kTilesMeet = 1, kTilesGroupMeets = 2;

// Rows of y, whose type is chosen at run time. Columns 2i and 2i + 1 of a row belong to one lane.
struct TilesOutput {
  std::byte* data;
  int64_t stride;  // bytes
  DType dtype;
  bool pairs;  // two columns are one access
  bool accumulates;
  int32_t columns;

  template <class T>
  __device__ __forceinline__ T* at(int64_t row, int64_t column) const {
    return reinterpret_cast<T*>(data + row * stride) + column;
  }
  // Columns `column`, which is even, and the next; what stands for one that is not there has no
  // meaning.
  template <class T>
  __device__ __forceinline__ Vector<T, 2> load(int64_t row, int32_t column) const {
    const T* const from = at<T>(row, column);
    const bool both = column + 1 < columns;
    if (pairs && both) return Vector<T, 2>::load(from);
    return {{from[0], from[both ? 1 : 0]}};
  }
  template <class T>
  __device__ __forceinline__ void store(int64_t row, int32_t column, float2 values) const {
    T* const to = at<T>(row, column);
    const bool both = column + 1 < columns;
    if (pairs && both) {
      return Vector<T, 2>{{from_float<T>(values.x), from_float<T>(values.y)}}.store(to);
    }
    to[0] = from_float<T>(values.x);
    if (both) to[1] = from_float<T>(values.y);
  }
};

// body.operator()<T, kAccumulates>() for what y is.
template <class Body>
__device__ __forceinline__ void with_output(const TilesOutput& y, const Body& body) {
  const auto of_type = [&]<class T>() {
    if (y.accumulates) return body.template operator()<T, true>();
    body.template operator()<T, false>();
  };
  if (y.dtype == DType::kF32) return of_type.template operator()<float>();
  if (y.dtype == DType::kF16) return of_type.template operator()<__half>();
  of_type.template operator()<__nv_bfloat16>();
}

struct TilesArguments {
  PackedSegment weight;
  const float* bias;  // of the segment's rows, or null
  TilesOutput y;      // its columns are the segment's rows
  int32_t m, groups;
  float scale;           // of all sums
  const std::byte* x;    // as stage_tile_rows() leaves it
  const float* factors;  // too
  BlocksWideRows rows;
  BlocksTilesPlan plan;

  __device__ __forceinline__ float2 bias_of(int32_t row, bool both) const {
    if (bias == nullptr) return {};
    return {bias[row], both ? bias[row + 1] : 0.0f};
  }
};

// What a block has of a unit.
struct TilesShare {
  int32_t tile, x_block;          // of W, of x
  int32_t first_step, last_step;  // of K
};

__device__ __forceinline__ float2 finished(float2 sums, float factor, float2 bias) {
  return {fmaf(sums.x, factor, bias.x), fmaf(sums.y, factor, bias.y)};
}

// --- straight from registers: a lane has two rows of W side by side ---

// What sums of the rows of x of a tile are multiplied by, for each warpgroup, of a tile and of the
// one behind it, whose faster warps may be there already.
template <int kTiles>
struct TilesFactors {
  alignas(16) float of_rows[2][2][8 * kTiles];  // [warpgroup]
};
// One warpgroup's. They are asked for before the products of a tile, which take longer.
template <int kTiles>
class GroupFactors {
  static constexpr int kThreads = 4 * kWarpThreads;
  static constexpr int kOwn = 8 * kTiles / kThreads;

 public:
  __device__ __forceinline__ GroupFactors(TilesFactors<kTiles>& factors, int group)
      : factors_(factors.of_rows[group]),
        group_(group),
        thread_(static_cast<int>(threadIdx.x) % kThreads) {}

  __device__ __forceinline__ void ask(const TilesArguments& args, const TilesShare& share) {
    const int32_t first = share.x_block * 8 * kTiles + thread_;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int32_t row = first + i * kThreads;
      own_[i] = row < args.m ? args.factors[row] * args.scale : 0.0f;
    }
  }
  // Times the scale of all sums. By all threads of the warpgroup.
  __device__ __forceinline__ const float* shared() {
    half_ ^= 1;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) factors_[half_][thread_ + i * kThreads] = own_[i];
    named_sync(kTilesGroupMeets + group_, kThreads);
    return factors_[half_];
  }

 private:
  float (&factors_)[2][8 * kTiles];
  const int group_, thread_;
  int half_ = 0;
  float own_[kOwn];
};

// A lane's rows of y, two of each tile of 8, one behind the other. Where a row is is worked out
// when it is reached: all of them at once would fill the registers.
class RowPairs {
 public:
  __device__ __forceinline__ RowPairs(std::byte* first, int64_t stride)
      : first_(first), stride_(stride) {}
  __device__ __forceinline__ std::byte* row(int i) const {
    return first_ + (i == 0 ? offset_ : offset_ + stride_);
  }
  __device__ __forceinline__ void next() {
    offset_ += 8 * stride_;
    asm volatile("" : "+l"(offset_));
  }

 private:
  std::byte* const first_;
  const int64_t stride_;
  int64_t offset_ = 0;
};

// kPairs: the lane's two columns are one access. `to`: of its first row. `rows`: how many rows of x
// there are from there on; tile t has rows 8t and 8t + 1 of them.
template <class T, bool kAccumulates, bool kPairs, int kTiles>
__device__ __forceinline__ void store_sums(RowPairs to, int32_t rows, bool both,
                                           const float (&sums)[4 * kTiles], float2 bias,
                                           const float* factors) {
  constexpr int kBatch = !kPairs ? 1 : sizeof(T) == 2 ? kTilesBatch : kTilesBatch / 2;
#pragma unroll
  for (int batch = 0; batch < kTiles; batch += kBatch) {
    Vector<T, 2> before[kBatch][2] = {};
    if constexpr (kAccumulates) {
      RowPairs from = to;
#pragma unroll
      for (int t = 0; t < kBatch; ++t, from.next()) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * (batch + t) + i >= rows) continue;
          const T* const at = reinterpret_cast<const T*>(from.row(i));
          if constexpr (kPairs) {
            before[t][i] = Vector<T, 2>::load(at);
          } else {
            before[t][i] = {{at[0], at[both ? 1 : 0]}};
          }
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kBatch; ++t, to.next()) {
      const float2 factor = *reinterpret_cast<const float2*>(factors + 8 * (batch + t));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* const own = sums + 4 * (batch + t) + i;
        float2 value = finished({own[0], own[2]}, i == 0 ? factor.x : factor.y, bias);
        if (8 * (batch + t) + i >= rows) continue;
        if constexpr (kAccumulates) {
          value = {value.x + to_float(before[t][i].values[0]),
                   value.y + to_float(before[t][i].values[1])};
        }
        T* const at = reinterpret_cast<T*>(to.row(i));
        if constexpr (kPairs) {
          Vector<T, 2>{{from_float<T>(value.x), from_float<T>(value.y)}}.store(at);
        } else {
          at[0] = from_float<T>(value.x);
          if (both) at[1] = from_float<T>(value.y);
        }
      }
    }
  }
}

// `factors`: of the tile's rows of x, in shared memory.
template <class T, bool kAccumulates, int kTiles>
__device__ __forceinline__ void store_tile(const TilesArguments& args, const TilesShare& share,
                                           const float (&sums)[4 * kTiles], int warp,
                                           const float* factors) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int32_t n = (kBlocksWideWarps * share.tile + warp) * kBlocksRows + 2 * (lane / 4);
  if (n >= args.y.columns) return;
  const bool both = n + 1 < args.y.columns;
  const float2 bias = args.bias_of(n, both);
  const int32_t first = share.x_block * 8 * kTiles + 2 * (lane % 4), rows = args.m - first;
  const RowPairs to(reinterpret_cast<std::byte*>(args.y.at<T>(first, n)), args.y.stride);
  const float* const of_rows = factors + 2 * (lane % 4);
  if (args.y.pairs && both) {
    store_sums<T, kAccumulates, true, kTiles>(to, rows, true, sums, bias, of_rows);
  } else {
    store_sums<T, kAccumulates, false, kTiles>(to, rows, both, sums, bias, of_rows);
  }
}

// --- from what the blocks that share K have left in shared memory ---

template <int kTiles>
__device__ __forceinline__ void leave_tile(const float (&sums)[4 * kTiles], int warp, float* left) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<float2*>(left + (8 * t + 2 * (lane % 4) + i) * kTilesPitch +
                                 warp * kBlocksRows +
                                 2 * (lane / 4)) = {sums[4 * t + i], sums[4 * t + 2 + i]};
    }
  }
}

// finish(row of x, which of the lane's two pairs of rows of W, sums of each pair, factor) for this
// block's share of a tile. A warp takes rows of x two by two, a lane rows 2l and 64 + 2l of W, so
// that many loads from other blocks are on their way at once. `block_of(i)`: those that share K.
template <int kTiles, class BlockOf, class Finish>
__device__ __forceinline__ void add_up_tile(const TilesArguments& args, const TilesShare& share,
                                            int32_t split, const float* left,
                                            const BlockOf& block_of, const Finish& finish) {
  constexpr int kPairs = kTilesWeightRows / 64;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int32_t splits = args.plan.splits;
  const int32_t share_of_rows = (8 * kTiles + splits - 1) / splits;
  const int32_t last = min((split + 1) * share_of_rows, 8 * kTiles);
  const int32_t first = split * share_of_rows + static_cast<int32_t>(threadIdx.x) / kWarpThreads;
#pragma unroll 1
  for (int32_t row = first; row < last; row += 2 * kBlocksWideWarps) {
    float2 sums[2][kPairs] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t of_tile = min(row + i * kBlocksWideWarps, last - 1);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const uint32_t own = shared_address(left + of_tile * kTilesPitch + 64 * j + 2 * lane);
        float2 parts[kTilesClusterMax];
#pragma unroll
        for (int from = 0; from < kTilesClusterMax; ++from) {
          parts[from] = from < splits ? load_pair_of_cluster(address_in_block(own, block_of(from)))
                                      : float2{};
        }
#pragma unroll
        for (const float2& part : parts) {
          sums[i][j] = {sums[i][j].x + part.x, sums[i][j].y + part.y};
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t m = share.x_block * 8 * kTiles + row + i * kBlocksWideWarps;
      if (row + i * kBlocksWideWarps < last && m < args.m) {
        finish(m, sums[i], args.factors[m] * args.scale);
      }
    }
  }
}

template <class T, bool kAccumulates, int kTiles, class BlockOf>
__device__ __forceinline__ void store_shared_tile(const TilesArguments& args,
                                                  const TilesShare& share, int32_t split,
                                                  const float* left, const BlockOf& block_of) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  add_up_tile<kTiles>(
      args, share, split, left, block_of, [&](int32_t m, const float2(&sums)[2], float factor) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int32_t n = share.tile * kTilesWeightRows + 64 * j + 2 * lane;
          if (n >= args.y.columns) continue;
          float2 value = finished(sums[j], factor, args.bias_of(n, n + 1 < args.y.columns));
          if constexpr (kAccumulates) {
            const Vector<T, 2> before = args.y.load<T>(m, n);
            value = {value.x + to_float(before.values[0]), value.y + to_float(before.values[1])};
          }
          args.y.store<T>(m, n, value);
        }
      });
}

}  // namespace headrace::gpu
