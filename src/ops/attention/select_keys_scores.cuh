// The scores of select_keys on CUDA: one kernel for any index in f32, in the order of arithmetic of
// the CPU, and one for 16 bits on the tensor cores. A row that sees no more than it may choose is
// not scored.
//
// Thread blocks are spread over runs of rows (blockIdx.y) and over tiles of keys (blockIdx.x and
// every gridDim.x-th behind it), so that the keys of one long sequence are shared by many. How they
// are spread changes no score.
#pragma once

#include "gpu/mma.cuh"
#include "ops/attention/select_keys_scores.h"
#include "ops/attention/step_rows.cuh"
#include "ops/cuda_launch.cuh"

namespace headrace::gpu {

// Rows [row_first, row_first + row_count) of a step.
template <class T>
struct ScoreArguments {
  RowsOf<const T> queries;      // [T, heads dim]
  RowsOf<const float> weights;  // [T, heads]
  const std::byte* keys;        // index part of block 0, [dim][kScoredKeys]
  int64_t block_stride;         // bytes
  StepRows rows;
  int32_t row_first, row_count, rows_of_block;
  int32_t heads, dim, top;
  float* scores;  // [row_count, stride]
  int64_t stride;

  // Of row `r` of these.
  __device__ __forceinline__ int32_t seen(int32_t r) const { return rows.seen(row_first + r); }
};

// --- any index ---

constexpr int kPlainScoreThreads = 128;

// A thread a key. blockIdx.y: row.
template <class Kept, class T>
__global__ void __launch_bounds__(kPlainScoreThreads)
    score_keys_plainly(const __grid_constant__ ScoreArguments<T> args) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto r = static_cast<int32_t>(blockIdx.y);
  const int32_t seen = args.seen(r);
  if (seen <= args.top) return;
  const int32_t* const table = args.rows[args.row_first + r].block_table;
  const T* const queries = args.queries.row(args.row_first + r);
  const float* const weights = args.weights.row(args.row_first + r);
  const auto step = static_cast<int32_t>(gridDim.x) * kPlainScoreThreads;
  for (auto key = static_cast<int32_t>(blockIdx.x * kPlainScoreThreads + threadIdx.x); key < seen;
       key += step) {
    const auto* const numbers =
        reinterpret_cast<const Kept*>(args.keys + table[key / kScoredKeys] * args.block_stride) +
        key % kScoredKeys;
    float score = 0.0f;
    for (int32_t head = 0; head < args.heads; ++head) {
      const T* const query = queries + int64_t{head} * args.dim;
      float sum = 0.0f;
      for (int32_t d = 0; d < args.dim; ++d) {
        sum = fmaf(to_float(query[d]), to_float(numbers[int64_t{d} * kScoredKeys]), sum);
      }
      score = fmaf(weights[head], fmaxf(sum, 0.0f), score);
    }
    args.scores[r * args.stride + key] = score;
  }
}

// --- 16 bits on the tensor cores ---

constexpr int kIndexDim = 128;  // of DeepSeek V3.2 and GLM-5
constexpr int kIndexHeadsMax = 64;
constexpr int kScoreThreads = 256;
constexpr int kScoreRowsMax = 16;  // of a thread block
constexpr int kPagesOfWarp = 2;
constexpr int kStepsOfPage = kIndexDim / 16;
static_assert(kScoreThreads / 32 * kPagesOfWarp * kScoredKeys == kScoreTileKeys);

struct ScoreShared {
  // 16 bytes behind each head, so that the rows of a matrix lie in different banks.
  __half queries[kIndexHeadsMax][kIndexDim + 8];
  float weights[kIndexHeadsMax];
  const int32_t* tables[kScoreRowsMax];
  int32_t seen[kScoreRowsMax];   // 0: the row is not scored
  int32_t limit[kScoreRowsMax];  // the most keys that a row of its sequence sees here
};

// The keys of two pages as a warp's operands A. Lane (g, t) has tokens 2 g and 2 g + 1 as the rows
// g and g + 8 of the matrix, as these lie side by side in a page.
struct PageOperands {
  uint32_t a[kPagesOfWarp][kStepsOfPage][4];

  // Pages from key `first` on; those that begin at `limit` or behind are zero.
  template <class T>
  __device__ __forceinline__ void load(const ScoreArguments<T>& args, const int32_t* table,
                                       int32_t first, int32_t limit) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int page = 0; page < kPagesOfWarp; ++page) {
      const int32_t key = first + page * kScoredKeys;
      if (key >= limit) {
#pragma unroll
        for (int step = 0; step < kStepsOfPage; ++step) {
          for (int i = 0; i < 4; ++i) a[page][step][i] = 0;
        }
        continue;
      }
      const auto* const words = reinterpret_cast<const uint32_t*>(
                                    args.keys + table[key / kScoredKeys] * args.block_stride) +
                                lane / 4;
      constexpr int kWords = kScoredKeys / 2;  // of a component
#pragma unroll
      for (int step = 0; step < kStepsOfPage; ++step) {
        const uint32_t* const at = words + (step * 16 + lane % 4 * 2) * kWords;
        const uint32_t d0 = at[0], d1 = at[kWords], d8 = at[8 * kWords], d9 = at[9 * kWords];
        a[page][step][0] = __byte_perm(d0, d1, 0x5410);
        a[page][step][1] = __byte_perm(d0, d1, 0x7632);
        a[page][step][2] = __byte_perm(d8, d9, 0x5410);
        a[page][step][3] = __byte_perm(d8, d9, 0x7632);
      }
    }
  }
};

// Two numbers as F16, of which none is infinite: a query of BF16 may be beyond what F16 holds.
__device__ __forceinline__ uint32_t half_pair(float low, float high) {
  constexpr float kMax = 65504.0f;
  return packed<__half>(fminf(fmaxf(low, -kMax), kMax), fminf(fmaxf(high, -kMax), kMax));
}

// The queries and weights of row `r` to shared memory, by all threads.
template <class T>
__device__ __forceinline__ void load_queries(const ScoreArguments<T>& args, ScoreShared& shared,
                                             int32_t r) {
  constexpr int kEach = 8;
  const T* const from = args.queries.row(args.row_first + r);
  for (int i = static_cast<int>(threadIdx.x) * kEach; i < args.heads * kIndexDim;
       i += kScoreThreads * kEach) {
    const auto eight = Vector<T, kEach>::load(from + i);
    const auto pair = [&](int j) {
      return half_pair(to_float(eight.values[j]), to_float(eight.values[j + 1]));
    };
    *reinterpret_cast<uint4*>(&shared.queries[i / kIndexDim][i % kIndexDim]) =
        uint4{pair(0), pair(2), pair(4), pair(6)};
  }
  if (static_cast<int>(threadIdx.x) < args.heads) {
    shared.weights[threadIdx.x] = args.weights.row(args.row_first + r)[threadIdx.x];
  }
}

// The scores of a warp's keys of one row: [page][token 2 g, 2 g + 1] on every lane of g.
__device__ __forceinline__ void score_pages(const PageOperands& keys, const ScoreShared& shared,
                                            int32_t heads, float (&scores)[kPagesOfWarp][2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Lane l gives row l % 8 of matrix l / 8: eight heads, eight components.
  const uint32_t matrices = shared_address(&shared.queries[lane % 8][lane / 8 * 8]);
  constexpr uint32_t kHeadBytes = sizeof(shared.queries[0]);
  for (int page = 0; page < kPagesOfWarp; ++page) scores[page][0] = scores[page][1] = 0.0f;
  for (int32_t head = 0; head < heads; head += 8) {
    float products[kPagesOfWarp][4] = {};
#pragma unroll
    for (int step = 0; step < kStepsOfPage; step += 2) {
      uint32_t b[4];
      load_matrices(b, matrices + static_cast<uint32_t>(head) * kHeadBytes +
                           static_cast<uint32_t>(step) * 32);
#pragma unroll
      for (int page = 0; page < kPagesOfWarp; ++page) {
        multiply_add<__half>(products[page], keys.a[page][step], b[0], b[1]);
        multiply_add<__half>(products[page], keys.a[page][step + 1], b[2], b[3]);
      }
    }
    const float w0 = shared.weights[head + lane % 4 * 2];
    const float w1 = shared.weights[head + lane % 4 * 2 + 1];
#pragma unroll
    for (int page = 0; page < kPagesOfWarp; ++page) {
#pragma unroll
      for (int token = 0; token < 2; ++token) {
        const float first = fmaxf(products[page][2 * token], 0.0f);
        const float second = fmaxf(products[page][2 * token + 1], 0.0f);
        scores[page][token] = fmaf(w1, second, fmaf(w0, first, scores[page][token]));
      }
    }
  }
#pragma unroll
  for (int page = 0; page < kPagesOfWarp; ++page) {
#pragma unroll
    for (int token = 0; token < 2; ++token) {
      float& score = scores[page][token];
      score += __shfl_xor_sync(0xffffffffu, score, 1);
      score += __shfl_xor_sync(0xffffffffu, score, 2);
    }
  }
}

// What a thread block knows of its rows: the longest of them.
template <class T>
__device__ int32_t find_rows(const ScoreArguments<T>& args, ScoreShared& shared, int32_t first,
                             int32_t count) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < count) {
    const int32_t seen = args.seen(first + thread);
    shared.tables[thread] = args.rows[args.row_first + first + thread].block_table;
    shared.seen[thread] = seen > args.top ? seen : 0;
  }
  __syncthreads();
  if (thread < count) {
    int32_t limit = 0;
    for (int32_t i = 0; i < count; ++i) {
      if (shared.tables[i] == shared.tables[thread]) limit = max(limit, shared.seen[i]);
    }
    shared.limit[thread] = limit;
  }
  __syncthreads();
  int32_t longest = 0;
  for (int32_t i = 0; i < count; ++i) longest = max(longest, shared.seen[i]);
  return longest;
}

// Rows of one sequence that follow each other read a tile's keys once.
template <class T>
__global__ void __launch_bounds__(kScoreThreads, 2)
    score_keys(const __grid_constant__ ScoreArguments<T> args) {
  __shared__ alignas(16) ScoreShared shared;
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto first = static_cast<int32_t>(blockIdx.y) * args.rows_of_block;
  const int32_t count = min(args.rows_of_block, args.row_count - first);
  const int32_t longest = find_rows(args, shared, first, count);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr auto kTile = static_cast<int32_t>(kScoreTileKeys);
  PageOperands keys;
  for (int32_t tile = static_cast<int32_t>(blockIdx.x) * kTile; tile < longest;
       tile += static_cast<int32_t>(gridDim.x) * kTile) {
    const int32_t own = tile + static_cast<int32_t>(threadIdx.x) / 32 * kPagesOfWarp * kScoredKeys;
    const int32_t* held = nullptr;
    for (int32_t i = 0; i < count; ++i) {
      if (shared.seen[i] <= tile) continue;
      if (shared.tables[i] != held) {
        held = shared.tables[i];
        keys.load(args, held, own, shared.limit[i]);
      }
      __syncthreads();  // all have read the queries of the row before
      load_queries(args, shared, first + i);
      __syncthreads();
      float scores[kPagesOfWarp][2];
      score_pages(keys, shared, args.heads, scores);
      // Lanes t = 0 and 1 write a page each.
      const int page = lane % 4;
      if (page >= kPagesOfWarp) continue;
      float* const to = args.scores + (first + i) * args.stride + own + page * kScoredKeys;
      *reinterpret_cast<float2*>(to + lane / 4 * 2) =
          page == 0 ? float2{scores[0][0], scores[0][1]} : float2{scores[1][0], scores[1][1]};
    }
  }
}

}  // namespace headrace::gpu
