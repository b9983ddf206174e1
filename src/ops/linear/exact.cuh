// The kernel of exact.h.
//   x [M, K] of 16 bits, W [N, K] f32, y [M, N] f32, bias [N] f32
// TF32 products (m16n8k8): x is exact in TF32, W is the sum of two TF32 values but for its last two
// bits, sums are in f32. Rows of x are the 16-row side. The warps of a block share K, in turns of
// 16 columns, and add up their sums in their order: a row's bits do not depend on how many there
// are. A lane's four columns of the 16 are two of each product: which column is which k does not
// matter as long as x and W agree.
#pragma once

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/linear.h"

namespace headrace::gpu {

constexpr int kExactWarps = 8;
constexpr int kExactThreads = kExactWarps * kWarpThreads;
constexpr int kExactSpan = 16;  // columns of K that a warp takes at a time

template <class T>
struct ExactArguments {
  RowsOf<const T> x;
  RowsOf<const float> weight;
  const float* bias;
  RowsOf<float> y;
  int32_t m, n, k;
};

__device__ __forceinline__ uint32_t to_tf32(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

// c += a b, m16n8k8. With g = lane / 4, t = lane % 4: a (g, t) (g + 8, t) (g, t + 4) (g + 8, t +
// 4); b (t, g) (t + 4, g); c as m16n8k16's.
__device__ __forceinline__ void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// W's value as two TF32 ones.
struct ExactPair {
  uint32_t high, low;

  __device__ __forceinline__ static ExactPair of(float value) {
    const uint32_t high = to_tf32(value);
    return {high, to_tf32(value - __uint_as_float(high))};
  }
};

// kRowTiles tiles of 16 rows of x, kColumnTiles of 8 rows of W.
template <class T, int kRowTiles, int kColumnTiles>
struct ExactTile {
  using Four = Vector<T, 4>;
  struct Rows {
    Four of[kRowTiles][2];
  };
  struct Weights {
    float4 of[kColumnTiles];
  };
  const T* x[kRowTiles][2];
  const float* weight[kColumnTiles];
  float sums[kRowTiles][kColumnTiles][4] = {};

  // Rows past the end repeat the last: their sums are not stored.
  __device__ ExactTile(const ExactArguments<T>& args, int32_t first_row, int32_t first_column,
                       int lane) {
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      x[r / 2][r % 2] = args.x.row(min(first_row + 8 * r + lane / 4, args.m - 1));
    }
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      weight[c] = args.weight.row(min(first_column + 8 * c + lane / 4, args.n - 1));
    }
  }

  // Columns `column` to `column` + 3; zeros behind the end of K.
  __device__ __forceinline__ Weights load_weights(int32_t column, int32_t k) const {
    Weights loaded{};
    if (column >= k) return loaded;
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      loaded.of[c] = *reinterpret_cast<const float4*>(weight[c] + column);
    }
    return loaded;
  }
  __device__ __forceinline__ Rows load_rows(int32_t column, int32_t k) const {
    Rows loaded{};
    if (column >= k) return loaded;
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      loaded.of[r / 2][r % 2] = Four::load(x[r / 2][r % 2] + column);
    }
    return loaded;
  }

  __device__ __forceinline__ void multiply(const Rows& rows, const Weights& w) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      const ExactPair of[4] = {ExactPair::of(w.of[c].x), ExactPair::of(w.of[c].y),
                               ExactPair::of(w.of[c].z), ExactPair::of(w.of[c].w)};
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const uint32_t a[4] = {element(rows, r, 0, i), element(rows, r, 1, i),
                                 element(rows, r, 0, i + 1), element(rows, r, 1, i + 1)};
          multiply_add_tf32(sums[r][c], a, of[i].low, of[i + 1].low);
          multiply_add_tf32(sums[r][c], a, of[i].high, of[i + 1].high);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static uint32_t element(const Rows& rows, int tile, int half, int i) {
    return __float_as_uint(to_float(rows.of[tile][half].values[i]));
  }
};

template <int kRowTiles, int kColumnTiles>
using ExactPartial = float[kExactWarps / 2][16 * kRowTiles][8 * kColumnTiles + 1];

// Adds one half of the warps' sums to the other's, then the rest up in their order.
template <class T, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void leave_exact(ExactPartial<kRowTiles, kColumnTiles>& partial,
                                            const ExactTile<T, kRowTiles, kColumnTiles>& tile,
                                            int place, bool adds) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& at = partial[place][16 * r + 8 * (i / 2) + lane / 4][8 * c + 2 * (lane % 4) + i % 2];
        at = adds ? at + tile.sums[r][c][i] : tile.sums[r][c][i];
      }
    }
  }
}

// A warp has kAhead spans of W on their way, the first of them before the kernels before this one
// have ended.
template <class T, int kRowTiles, int kColumnTiles, int kAhead>
__global__ void __launch_bounds__(kExactThreads, 2) exact_products(ExactArguments<T> args) {
  using Tile = ExactTile<T, kRowTiles, kColumnTiles>;
  let_next_kernel_start();
  __shared__ ExactPartial<kRowTiles, kColumnTiles> partial;
  constexpr int32_t kRows = 16 * kRowTiles, kColumns = 8 * kColumnTiles;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int32_t first_row = static_cast<int32_t>(blockIdx.y) * kRows;
  const int32_t first_column = static_cast<int32_t>(blockIdx.x) * kColumns;
  constexpr int32_t kTurn = kExactWarps * kExactSpan;  // of K, a span of every warp
  Tile tile(args, first_row, first_column, lane);
  const int32_t own = warp * kExactSpan + 4 * (lane % 4);
  typename Tile::Weights w[kAhead];
#pragma unroll
  for (int s = 0; s < kAhead; ++s) w[s] = tile.load_weights(own + s * kTurn, args.k);
  wait_for_earlier_kernels();
  for (int32_t at = own; at - 4 * (lane % 4) < args.k; at += kAhead * kTurn) {
    typename Tile::Rows rows[kAhead];
#pragma unroll
    for (int s = 0; s < kAhead; ++s) rows[s] = tile.load_rows(at + s * kTurn, args.k);
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      tile.multiply(rows[s], w[s]);
      w[s] = tile.load_weights(at + (kAhead + s) * kTurn, args.k);
    }
  }
  constexpr int kHalf = kExactWarps / 2;
  if (warp < kHalf) leave_exact<T, kRowTiles, kColumnTiles>(partial, tile, warp, false);
  __syncthreads();
  if (warp >= kHalf) leave_exact<T, kRowTiles, kColumnTiles>(partial, tile, warp - kHalf, true);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns; i += kExactThreads) {
    const int row = i / kColumns, column = i % kColumns;
    if (first_row + row >= args.m || first_column + column >= args.n) continue;
    float sum = 0.0f;
#pragma unroll
    for (int from = 0; from < kHalf; ++from) sum += partial[from][row][column];
    if (args.bias != nullptr) sum += args.bias[first_column + column];
    args.y.row(first_row + row)[first_column + column] = sum;
  }
}

// Any K and alignment: a warp an element.
template <class T>
__global__ void __launch_bounds__(kExactThreads) exact_elements(ExactArguments<T> args) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int64_t element = static_cast<int64_t>(blockIdx.x) * kExactWarps +
                          static_cast<int64_t>(threadIdx.x) / kWarpThreads;
  if (element >= static_cast<int64_t>(args.m) * args.n) return;
  const auto row = static_cast<int32_t>(element / args.n);
  const auto column = static_cast<int32_t>(element % args.n);
  const T* x = args.x.row(row);
  const float* weight = args.weight.row(column);
  float sum = 0.0f;
  for (int32_t i = lane; i < args.k; i += kWarpThreads) {
    sum = fmaf(to_float(x[i]), weight[i], sum);
  }
  sum = warp_sum(sum);
  if (args.bias != nullptr) sum += args.bias[column];
  if (lane == 0) args.y.row(row)[column] = sum;
}

// A block an element of each of few rows, which all threads share K of: W is asked for before the
// kernel before this one has ended. Sums are f32, a thread's columns in order, then a tree.
inline constexpr int kExactFewRows = 4;
inline constexpr int kExactAsked = 2;  // fours of W a thread

template <class T, int kRows>
__global__ void __launch_bounds__(kExactThreads)
    exact_few(const __grid_constant__ ExactArguments<T> args) {
  __shared__ float partial[kExactWarps][kRows];
  let_next_kernel_start();
  const auto n = static_cast<int32_t>(blockIdx.x);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const float* const weight = args.weight.row(n);
  constexpr int kSpan = 4 * kExactThreads;
  float4 asked[kExactAsked];
#pragma unroll
  for (int i = 0; i < kExactAsked; ++i) {
    const int32_t column = thread * 4 + i * kSpan;
    asked[i] = column < args.k ? *reinterpret_cast<const float4*>(weight + column)
                               : float4{0.0f, 0.0f, 0.0f, 0.0f};
  }
  wait_for_earlier_kernels();
  float sums[kRows] = {};
  const auto add = [&](const float4& w, int32_t column) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto x = Vector<T, 4>::load(args.x.row(r) + column);
      sums[r] = fmaf(w.x, to_float(x.values[0]), sums[r]);
      sums[r] = fmaf(w.y, to_float(x.values[1]), sums[r]);
      sums[r] = fmaf(w.z, to_float(x.values[2]), sums[r]);
      sums[r] = fmaf(w.w, to_float(x.values[3]), sums[r]);
    }
  };
#pragma unroll
  for (int i = 0; i < kExactAsked; ++i) {
    const int32_t column = thread * 4 + i * kSpan;
    if (column < args.k) add(asked[i], column);
  }
  for (int32_t column = thread * 4 + kExactAsked * kSpan; column < args.k; column += kSpan) {
    add(*reinterpret_cast<const float4*>(weight + column), column);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = warp_sum(sums[r]);
    if (thread % kWarpThreads == 0) partial[thread / kWarpThreads][r] = sum;
  }
  __syncthreads();
  if (thread >= kRows) return;
  float sum = args.bias != nullptr ? args.bias[n] : 0.0f;
  for (int w = 0; w < kExactWarps; ++w) sum += partial[w][thread];
  args.y.row(thread)[n] = sum;
}

}  // namespace headrace::gpu
