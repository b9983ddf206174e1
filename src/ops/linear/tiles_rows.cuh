// Rows of x as blocks_tiles.cuh multiplies them, in F16 in the order of tiles_layout.h: as they
// are, or as rms_norm makes them. A cluster of blocks takes 8 rows, each block some of K.
#pragma once

#include "gpu/cluster.cuh"
#include "gpu/f16_range.cuh"
#include "gpu/vector.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/tiles_layout.h"
#include "ops/linear/wide_layout.h"
#include "ops/linear/wide_rows.cuh"
#include "ops/rows/rms_norm.h"

namespace headrace::gpu {

constexpr int kTileRowsThreads = 256;
constexpr int kTileRowsClusterMax = 8;
constexpr int kTileRowsPieces = kTileRowsThreads / 8;  // of 16 columns, that a block takes at once

template <class T>
struct TileRowsArguments {
  RowsOf<T> x;               // written where there is a residual
  RowsOf<const T> residual;  // as of RmsNormArgs, or no data
  const float* norm;         // [K], where rows are normalised
  std::byte* out;            // [x blocks][steps][tiles_step_bytes()]
  float* factors;            // by row of x: what its sums are multiplied by (f16_range.cuh)
  int32_t m, chunks;         // of x
  int32_t steps, tiles;      // of BlocksWideRows
  int32_t cluster;           // blocks
  float eps, residual_scale;
};

// A thread's pieces of one of the 8 rows: lane l of warp w has row l % 8, pieces 4 w + l / 8 and
// on.
template <class T, bool kNormed>
class TileRow {
  using Half = Vector<T, 8>;
  static constexpr int kHeld = kNormed ? 2 : 4;  // pieces that a thread keeps in registers
  static constexpr int kPiecesOfStep = 2 * kWideStepChunks;

 public:
  __device__ __forceinline__ TileRow(const TileRowsArguments<T>& args, int32_t tile, int32_t rank)
      : args_(args), row_(8 * tile + static_cast<int32_t>(threadIdx.x) % 8) {
    first_ = rank * kTileRowsPieces + static_cast<int32_t>(threadIdx.x) / 8;
    out_ = args.out + int64_t{tile / args.tiles} * args.steps * tiles_step_bytes(args.tiles) +
           tile % args.tiles * (2 * kCoreBytes) + static_cast<int32_t>(threadIdx.x) % 8 * 16;
  }

  // Reads the row; of one that is normalised, the sum of this thread's squares.
  __device__ __forceinline__ float read() {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) load(held_[i], args_.x, at(i));
    float squares = 0.0f;
    if constexpr (kNormed) {
      Piece added[kHeld];
      if (args_.residual.data != nullptr) {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) load(added[i], args_.residual, at(i));
      }
#pragma unroll
      for (int i = 0; i < kHeld; ++i) squares += finish(held_[i], added[i], at(i));
#pragma unroll 1
      for (int i = kHeld; at(i) < pieces(); ++i) {
        Piece piece, more;
        load(piece, args_.x, at(i));
        if (args_.residual.data != nullptr) load(more, args_.residual, at(i));
        squares += finish(piece, more, at(i));
      }
    }
    return squares;
  }

  // Normalised values in place of those that were read, rounded to T.
  __device__ __forceinline__ void normalise(float factor) {
    normal_ = factor;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) apply_norm(held_[i], at(i));
  }

  // Whether some number is beyond F16.
  __device__ __forceinline__ bool store(float factor) {
    bool beyond = false;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (at(i) < pieces()) beyond |= store(held_[i], at(i), factor);
    }
#pragma unroll 1
    for (int i = kHeld; at(i) < pieces(); ++i) {
      Piece piece;
      load(piece, args_.x, at(i));
      apply_norm(piece, at(i));
      beyond |= store(piece, at(i), factor);
    }
    return beyond;
  }

 private:
  struct Piece {
    Half halves[2];
  };

  __device__ __forceinline__ int32_t pieces() const { return args_.steps * kPiecesOfStep; }
  __device__ __forceinline__ int32_t at(int i) const {
    return first_ + i * args_.cluster * kTileRowsPieces;
  }
  // The first column of a piece; below 0 where it is zeros: rows past the end, and what of the last
  // step the one before it has.
  __device__ __forceinline__ int32_t column(int32_t piece) const {
    const int32_t step = piece / kPiecesOfStep, of_step = piece % kPiecesOfStep;
    const int32_t chunk = wide_step_first_chunk(step, args_.chunks) + of_step / 2;
    const bool own = piece < pieces() && row_ < args_.m && chunk >= step * kWideStepChunks;
    return own ? 32 * chunk + 16 * (of_step % 2) : -1;
  }
  template <class Rows>
  __device__ __forceinline__ void load(Piece& piece, const Rows& rows, int32_t at) const {
    piece = {};
    const int32_t from = column(at);
    if (from < 0) return;
    piece.halves[0] = Half::load(rows.row(row_) + from);
    piece.halves[1] = Half::load(rows.row(row_) + from + 8);
  }
  // Adds what waits, to x too. The sum of squares.
  __device__ __forceinline__ float finish(Piece& piece, const Piece& added, int32_t at) const {
    const int32_t from = column(at);
    if (from < 0) return 0.0f;
    float squares = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        T& value = piece.halves[half].values[e];
        if (args_.residual.data != nullptr) {
          value = from_float<T>(to_float(value) +
                                args_.residual_scale * to_float(added.halves[half].values[e]));
        }
        squares += to_float(value) * to_float(value);
      }
      if (args_.residual.data != nullptr) {
        piece.halves[half].store(args_.x.row(row_) + from + 8 * half);
      }
    }
    return squares;
  }
  __device__ __forceinline__ void apply_norm(Piece& piece, int32_t at) const {
    if constexpr (!kNormed) return;
    const int32_t from = column(at);
    if (from < 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto weights = Vector<float, 8>::load(args_.norm + from + 8 * half);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        T& value = piece.halves[half].values[e];
        value = from_float<T>(to_float(value) * normal_ * weights.values[e]);
      }
    }
  }
  // Even columns, then odd ones, a core matrix each (wide_rows.cuh).
  __device__ __forceinline__ bool store(const Piece& piece, int32_t at, float factor) const {
    bool beyond = false;
    Vector<__half, 8> cores[2];
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      const float x = to_float(piece.halves[e / 8].values[e % 8]) * factor;
      if constexpr (!std::is_same_v<T, __half>) beyond |= beyond_f16(x);
      cores[e % 2].values[e / 2] = from_float<__half>(x);
    }
    std::byte* const to = out_ + int64_t{at} * (2 * kCoreBytes * args_.tiles);
    cores[0].store(reinterpret_cast<__half*>(to));
    cores[1].store(reinterpret_cast<__half*>(to + kCoreBytes));
    return beyond;
  }

  const TileRowsArguments<T>& args_;
  const int32_t row_;
  int32_t first_;
  std::byte* out_;
  float normal_ = 1.0f;
  Piece held_[kHeld];
};

// Of all threads of a cluster that have this thread's row: the sum, in one order whatever runs.
// kUse: a kernel's first, its second; nobody leaves before cluster_sync() after the last.
template <int kUse>
__device__ __forceinline__ float sum_of_tile_row(float value, int32_t cluster) {
  constexpr int kWarps = kTileRowsThreads / kWarpThreads;
  __shared__ float of_warps[kWarps][8], of_block[8];
  const int row = static_cast<int>(threadIdx.x) % 8;
  value += __shfl_xor_sync(0xffffffffu, value, 8);
  value += __shfl_xor_sync(0xffffffffu, value, 16);
  if (threadIdx.x % kWarpThreads < 8) of_warps[threadIdx.x / kWarpThreads][row] = value;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp][row];
  if (cluster == 1) return sum;
  if (threadIdx.x < 8) of_block[row] = sum;
  cluster_sync();
  sum = 0.0f;
  for (int32_t rank = 0; rank < cluster; ++rank) {
    sum += __uint_as_float(load_word_of_cluster(
        address_in_block(shared_address(&of_block[row]), static_cast<uint32_t>(rank))));
  }
  return sum;
}

template <class T, bool kNormed>
__global__ void __launch_bounds__(kTileRowsThreads, 2) stage_tile_rows(TileRowsArguments<T> args) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int32_t tile = static_cast<int32_t>(blockIdx.x) / args.cluster;
  TileRow<T, kNormed> row(args, tile, static_cast<int32_t>(blockIdx.x) % args.cluster);
  const float squares = row.read();
  if constexpr (kNormed) {
    const float mean =
        sum_of_tile_row<0>(squares, args.cluster) / static_cast<float>(32 * args.chunks);
    row.normalise(rsqrtf(mean + args.eps));
  }
  constexpr bool kMeets = kNormed || !std::is_same_v<T, __half>;  // blocks read each other's sums
  const bool beyond = row.store(1.0f);
  bool smaller = false;
  if constexpr (!std::is_same_v<T, __half>) {
    smaller = sum_of_tile_row<1>(beyond ? 1.0f : 0.0f, args.cluster) > 0.0f;
    if (smaller) row.store(kF16Smaller);
  }
  if (kMeets && args.cluster > 1) cluster_sync();
  if (threadIdx.x < 8 && blockIdx.x % args.cluster == 0) {
    args.factors[8 * tile + static_cast<int32_t>(threadIdx.x)] = smaller ? kF16Larger : 1.0f;
  }
}

}  // namespace headrace::gpu
