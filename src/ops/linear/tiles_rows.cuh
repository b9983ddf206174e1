// Rows of x as blocks_tiles.cuh multiplies them, in F16 in the order of tiles_layout.h. A block
// takes two rows, whole, so that their sums meet in it alone and what two threads side by side
// store is a sector of the L2 cache.
#pragma once

#include "gpu/f16_range.cuh"
#include "gpu/reduce.cuh"
#include "ops/linear/made_rows.cuh"
#include "ops/linear/tiles_layout.h"
#include "ops/linear/wide_layout.h"
#include "ops/linear/wide_rows.cuh"

namespace headrace::gpu {

constexpr int kTileRowsOfBlock = 2;
// Threads of a block at most, as many as a row has numbers for: a thread of a row that is
// normalised keeps 16 of them.
template <RowsOfX kSource>
constexpr int kTileRowsThreads = kSource == RowsOfX::kNormed ? 1024 : 512;

template <class T>
struct TileRowsArguments {
  MadeRows<T> rows;
  std::byte* out;        // [x blocks][steps][tiles_step_bytes()]; of rows past the last nothing
  float* factors;        // by row of x: what its sums are multiplied by (f16_range.cuh)
  int32_t steps, tiles;  // of BlocksWideRows
};

// A thread's pieces of 16 columns of its row: thread t has row t % 2, pieces t / 2 and so on.
template <class T, RowsOfX kSource>
class TileRow {
  using Half = Vector<T, 8>;
  static constexpr bool kNormed = kSource == RowsOfX::kNormed;
  // Pieces that are asked for at once.
  static constexpr int kBatch = kSource == RowsOfX::kPlain ? 2 : 1;
  static constexpr int kPiecesOfStep = 2 * kWideStepChunks;

  struct Piece {
    Half halves[2];
  };
  struct Weights {
    Vector<float, 8> halves[2];
  };

 public:
  __device__ __forceinline__ explicit TileRow(const TileRowsArguments<T>& args)
      : args_(args), first_(static_cast<int32_t>(threadIdx.x) / kTileRowsOfBlock) {
    row_ = static_cast<int32_t>(blockIdx.x * kTileRowsOfBlock + threadIdx.x % kTileRowsOfBlock);
    const int32_t tile = row_ / 8;
    out_ = args.out + int64_t{tile / args.tiles} * args.steps * tiles_step_bytes(args.tiles) +
           tile % args.tiles * (2 * kCoreBytes) + row_ % 8 * 16;
  }

  __device__ __forceinline__ int32_t row() const { return row_; }
  __device__ __forceinline__ bool is_row() const { return row_ < args_.rows.m; }

  // What no kernel writes.
  __device__ __forceinline__ void read_norm() { load_weights(weights_, at(0)); }
  // The sum of this thread's squares; what waits is added, to x too.
  __device__ __forceinline__ float read() {
    load(held_, at(0));
    float squares = finish(held_, at(0));
#pragma unroll 1
    for (int i = 1; at(i) < pieces(); ++i) {
      Piece piece;
      load(piece, at(i));
      squares += finish(piece, at(i));
    }
    return squares;
  }
  __device__ __forceinline__ void normalise(float factor) {
    factor_ = factor;
    normalise(held_, weights_);
  }

  // Whether some number is beyond F16.
  __device__ __forceinline__ bool store(float factor) const {
    bool beyond = false;
    if constexpr (kNormed) beyond = store(held_, at(0), factor);
#pragma unroll 1
    for (int i = kNormed ? 1 : 0; at(i) < pieces(); i += kBatch) {
      Piece made[kBatch];
      make(made, i);
#pragma unroll
      for (int of = 0; of < kBatch; ++of) beyond |= store(made[of], at(i + of), factor);
    }
    return beyond;
  }

 private:
  __device__ __forceinline__ int32_t pieces() const { return args_.steps * kPiecesOfStep; }
  __device__ __forceinline__ int32_t at(int i) const {
    return first_ + i * static_cast<int32_t>(blockDim.x) / kTileRowsOfBlock;
  }
  // The first column of a piece; below 0 where it is zeros: past the last row, and what of the last
  // step the one before it has.
  __device__ __forceinline__ int32_t column(int32_t piece) const {
    const int32_t step = piece / kPiecesOfStep, of_step = piece % kPiecesOfStep;
    const int32_t chunk = wide_step_first_chunk(step, args_.rows.k / 32) + of_step / 2;
    const bool own = piece < pieces() && is_row() && chunk >= step * kWideStepChunks;
    return own ? 32 * chunk + 16 * (of_step % 2) : -1;
  }
  template <class Rows>
  __device__ __forceinline__ void load(Piece& piece, const Rows& rows, int32_t from) const {
    piece = {};
    if (from < 0) return;
    piece.halves[0] = Half::load(rows.row(row_) + from);
    piece.halves[1] = Half::load(rows.row(row_) + from + 8);
  }
  __device__ __forceinline__ void load(Piece& piece, int32_t at) const {
    load(piece, args_.rows.x, column(at));
  }
  __device__ __forceinline__ void load_weights(Weights& weights, int32_t at) const {
    if (const int32_t from = column(at); from >= 0) {
      weights.halves[0] = Vector<float, 8>::load(args_.rows.norm + from);
      weights.halves[1] = Vector<float, 8>::load(args_.rows.norm + from + 8);
    }
  }

  __device__ __forceinline__ float finish(Piece& piece, int32_t at) const {
    const int32_t from = column(at);
    if (from < 0) return 0.0f;
    if (args_.rows.residual.data != nullptr) {
      Piece added;
      load(added, args_.rows.residual, from);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        add_residual(piece.halves[half], added.halves[half], args_.rows.residual_scale);
        piece.halves[half].store(args_.rows.x.row(row_) + from + 8 * half);
      }
    }
    return sum_of_squares(piece.halves[0]) + sum_of_squares(piece.halves[1]);
  }
  __device__ __forceinline__ void normalise(Piece& piece, const Weights& weights) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      gpu::normalise(piece.halves[half], factor_, weights.halves[half]);
    }
  }

  // Pieces i and on, all asked for before any is used.
  __device__ __forceinline__ void make(Piece (&made)[kBatch], int i) const {
#pragma unroll
    for (int of = 0; of < kBatch; ++of) load(made[of], at(i + of));
    if constexpr (kNormed) {
      Weights weights{};
      load_weights(weights, at(i));
      normalise(made[0], weights);
    }
    if constexpr (kSource == RowsOfX::kGated) {
      Piece ups[kBatch];
#pragma unroll
      for (int of = 0; of < kBatch; ++of) {
        const int32_t from = column(at(i + of));
        load(ups[of], args_.rows.x, from < 0 ? from : from + args_.rows.k);
      }
      with_gate(args_.rows.activation, [&]<class Act>() {
#pragma unroll
        for (int of = 0; of < kBatch; ++of) {
          apply_gates<Act>(made[of].halves[0], ups[of].halves[0]);
          apply_gates<Act>(made[of].halves[1], ups[of].halves[1]);
        }
      });
    }
  }
  // Even columns, then odd ones, a core matrix each (wide_rows.cuh).
  __device__ __forceinline__ bool store(const Piece& piece, int32_t at, float factor) const {
    if (at >= pieces()) return false;
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
  const int32_t first_;
  int32_t row_;
  std::byte* out_;
  float factor_ = 1.0f;
  Piece held_{};
  Weights weights_{};
};

// Of all threads of the block that have this thread's row: the sum, in one order whatever runs.
__device__ __forceinline__ float sum_of_tile_row(float value) {
  static_assert(kTileRowsOfBlock == 2);
  __shared__ float of_warps[kWarpThreads][kTileRowsOfBlock];
  const int row = static_cast<int>(threadIdx.x) % kTileRowsOfBlock;
#pragma unroll
  for (int distance = kTileRowsOfBlock; distance < kWarpThreads; distance *= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  if (threadIdx.x % kWarpThreads < kTileRowsOfBlock)
    of_warps[threadIdx.x / kWarpThreads][row] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarpThreads; ++warp) {
    sum += of_warps[warp][row];
  }
  return sum;
}

template <class T, RowsOfX kSource>
__global__ void __launch_bounds__(kTileRowsThreads<kSource>, 1024 / kTileRowsThreads<kSource>)
    stage_tile_rows(const __grid_constant__ TileRowsArguments<T> args) {
  let_next_kernel_start();
  TileRow<T, kSource> row(args);
  if constexpr (kSource == RowsOfX::kNormed) row.read_norm();
  wait_for_earlier_kernels();
  if constexpr (kSource == RowsOfX::kNormed) {
    const float mean = sum_of_tile_row(row.read()) / static_cast<float>(args.rows.k);
    row.normalise(rsqrtf(mean + args.rows.eps));
  }
  float factor = 1.0f;
  constexpr bool kMayBeBeyond = !std::is_same_v<T, __half>;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {  // all but always one
    const bool beyond = row.store(factor);
    if (!kMayBeBeyond || round == 1 || !__syncthreads_or(beyond)) break;
    const bool first = threadIdx.x % kTileRowsOfBlock == 0;
    const int of_first = __syncthreads_or(beyond && first);
    const int of_second = __syncthreads_or(beyond && !first);
    if ((first ? of_first : of_second) != 0) factor = kF16Smaller;
  }
  if (threadIdx.x < kTileRowsOfBlock && row.is_row()) {
    args.factors[row.row()] = factor == 1.0f ? 1.0f : kF16Larger;
  }
}

}  // namespace headrace::gpu
