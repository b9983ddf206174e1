// The kernel of blocks_wide.h. A warp takes a packed group (16 rows of W), the warps of a block
// stand side by side and read the same rows of x; the blocks of a cluster share K, and their sums
// meet in shared memory.
#pragma once

#include "gpu/bulk_copy.cuh"
#include "gpu/cluster.cuh"
#include "ops/linear/blocks.cuh"

namespace headrace::gpu {

// A stage: so many chunks of 32 columns of the block's rows of x. Rows stand apart by 32 bytes more
// than a multiple of 128, so that the eight rows that a warp reads lie in different banks.
constexpr int kStageChunks = 4, kStages = 4, kStagesAhead = 2;
constexpr int kStageRowBytes = kStageChunks * 64 + 32;
constexpr int kWideRows = kBlocksWarps * kBlocksRows;  // of W
// Sums of a row of x, when they meet: a float more than rows, so that columns lie in all banks.
constexpr int kSumsPitch = kWideRows + 4;

constexpr int wide_shared_bytes(int tiles) {
  const int stages = kStages * 8 * tiles * kStageRowBytes;
  const int sums = 8 * tiles * kSumsPitch * static_cast<int>(sizeof(float));
  return stages > sums ? stages : sums;
}

template <class T>
struct WideArguments {
  BlocksArguments<T> common;
  RowsOf<const T> x;
  int32_t x_blocks;
  int32_t splits;
};

// F16 weights are a power of two larger while they are multiplied: scales of small weights would
// else be below what F16 holds in full.
template <class T>
inline constexpr float kRaised = 1.0f;
template <>
inline constexpr float kRaised<__half> = 64.0f;

// Scale and minimum of a part of one row, as a product with quants wants them.
template <class T>
struct UnpackScale;

template <>
struct UnpackScale<__half> {
  uint32_t pair;  // scale below, minimum above

  __device__ __forceinline__ explicit UnpackScale(const PartScale& scale)
      : pair(packed<__half>(scale.scale * kRaised<__half>, scale.minimum * kRaised<__half>)) {}
  __device__ __forceinline__ explicit UnpackScale(uint32_t shared) : pair(shared) {}
  __device__ __forceinline__ UnpackScale from_lane(int lane) const {
    return UnpackScale(__shfl_sync(0xffffffffu, pair, lane, 4));
  }
  template <int kType, int kPair>
  __device__ __forceinline__ uint32_t weights(uint32_t stored) const {
    const uint32_t quants = quant_pair<__half, kType, kPair>(stored);
    const uint32_t scales = __byte_perm(pair, 0, 0x1010);
    __half2 value;
    if constexpr (kFormat<kType>.minimum) {
      const uint32_t minima = __byte_perm(pair, 0, 0x3232);
      value = __hfma2(reinterpret_cast<const __half2&>(quants),
                      reinterpret_cast<const __half2&>(scales),
                      reinterpret_cast<const __half2&>(minima));
    } else {
      value = __hmul2(reinterpret_cast<const __half2&>(quants),
                      reinterpret_cast<const __half2&>(scales));
    }
    return reinterpret_cast<const uint32_t&>(value);
  }
};

template <>
struct UnpackScale<__nv_bfloat16> {
  PartScale scale;

  __device__ __forceinline__ explicit UnpackScale(const PartScale& own) : scale(own) {}
  __device__ __forceinline__ UnpackScale from_lane(int lane) const {
    return UnpackScale(PartScale{__shfl_sync(0xffffffffu, scale.scale, lane, 4),
                                 __shfl_sync(0xffffffffu, scale.minimum, lane, 4)});
  }
  template <int kType, int kPair>
  __device__ __forceinline__ uint32_t weights(uint32_t stored) const {
    return packed<__nv_bfloat16>(
        fmaf(quant<kType>(stored, 2 * kPair), scale.scale, scale.minimum),
        fmaf(quant<kType>(stored, 2 * kPair + 1), scale.scale, scale.minimum));
  }
};

// The part scales that this lane has read, of rows g and g + 8.
template <class T, int kType>
struct UnpackScales {
  using Step = GroupStep<kType>;
  UnpackScale<T> of[Step::kPartsOfLane][2];

  __device__ __forceinline__ explicit UnpackScales(const Step& step)
      : UnpackScales(step, std::make_integer_sequence<int, Step::kPartsOfLane>()) {}
  // Of part `part` of the step, of row g + 8 `half`.
  __device__ __forceinline__ UnpackScale<T> shared(int part, int half) const {
    return of[part % Step::kPartsOfLane][half].from_lane(part / Step::kPartsOfLane);
  }

 private:
  template <int... kParts>
  __device__ __forceinline__ UnpackScales(const Step& step, std::integer_sequence<int, kParts...>)
      : of{{UnpackScale<T>(scale_of<kType>(step.raw[kParts][0])),
            UnpackScale<T>(scale_of<kType>(step.raw[kParts][1]))}...} {}
};

// Weights of 32 columns as the A operand of two products of 16 columns.
template <class T, int kType>
__device__ __forceinline__ void weight_operand(uint32_t (&a)[2][4], const GroupStep<kType>& step,
                                               const UnpackScales<T, kType>& scales, int chunk,
                                               int quad) {
  constexpr int kParts = GroupStep<kType>::kPartsOfChunk;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t low = stored_quants<kType, 0>(step.quads[chunk][half], quad);
    const uint32_t high = stored_quants<kType, 1>(step.quads[chunk][half], quad);
    const UnpackScale<T> first = scales.shared(chunk * kParts, half);
    const UnpackScale<T> second = kParts == 1 ? first : scales.shared(chunk * kParts + 1, half);
    a[0][half] = first.template weights<kType, 0>(low);
    a[0][2 + half] = first.template weights<kType, 1>(low);
    a[1][half] = second.template weights<kType, 0>(high);
    a[1][2 + half] = second.template weights<kType, 1>(high);
  }
}

// The stages of a block's rows of x on their way through shared memory. Stage i is columns
// 32 (first + kStageChunks i) and on.
template <class T, int kTiles>
struct WideStages {
  std::byte* ring;  // [kStages][8 kTiles][kStageRowBytes]
  Barrier* full;    // [kStages]
  Barrier* empty;   // [kStages] a warp each arrives
  int32_t first, end;

  __device__ __forceinline__ int32_t count() const {
    return (end - first + kStageChunks - 1) / kStageChunks;
  }
  __device__ __forceinline__ const std::byte* slot(int32_t i) const {
    return ring + i % kStages * (8 * kTiles * kStageRowBytes);
  }
  // By one whole warp. Rows past the end repeat the last: their sums are not stored.
  __device__ __forceinline__ void fill(int32_t i, const RowsOf<const T>& x, int32_t first_row,
                                       int32_t rows, int lane) {
    const int32_t at = i % kStages;
    if (i >= kStages) empty[at].wait(static_cast<uint32_t>(i / kStages - 1) & 1);
    const int32_t chunk = first + kStageChunks * i;
    const auto bytes = static_cast<uint32_t>(min(kStageChunks, end - chunk) * 64);
    if (lane == 0) full[at].arrive_expecting(8 * kTiles * bytes);
    __syncwarp();
    std::byte* const to = ring + at * (8 * kTiles * kStageRowBytes);
#pragma unroll
    for (int32_t r = lane; r < 8 * kTiles; r += kWarpThreads) {
      copy_bytes(to + r * kStageRowBytes, x.row(min(first_row + r, rows - 1)) + 32 * chunk, bytes,
                 full[at]);
    }
  }
};

template <class T, int kType, int kTiles>
__global__ void __launch_bounds__(kBlocksWarps* kWarpThreads, 2)
    multiply_wide(WideArguments<T> args) {
  using Step = GroupStep<kType>;
  static_assert(Step::kChunks % kStageChunks == 0);
  constexpr int kColumns = 8 * kTiles;
  let_next_kernel_start();
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ Barrier barriers[2 * kStages];
  const BlocksArguments<T>& common = args.common;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int row = lane / 4, quad = lane % 4;
  const int32_t rank = args.splits > 1 ? static_cast<int32_t>(cluster_rank()) : 0;
  const int32_t tile = static_cast<int32_t>(blockIdx.x) / args.splits;
  const int32_t first_column = tile % args.x_blocks * kColumns;
  const int32_t first_group = tile / args.x_blocks * kBlocksWarps;
  const int32_t chunks = common.weight.chunks;
  const int32_t steps = (chunks + Step::kChunks - 1) / Step::kChunks;
  const int32_t share = (steps + args.splits - 1) / args.splits;
  const int32_t first_step = min(rank * share, steps), last_step = min(first_step + share, steps);
  // Warps past the last group repeat it: their sums are not stored.
  const PackedGroup group = common.weight.group(min(first_group + warp, common.groups - 1));

  WideStages<T, kTiles> stages{shared, barriers, barriers + kStages, first_step * Step::kChunks,
                               min(last_step * Step::kChunks, chunks)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      stages.full[i].init(1);
      stages.empty[i].init(kBlocksWarps);
    }
    fence_barrier_init();
  }
  Step next;
  if (first_step < last_step) next.load(group, first_step, chunks, lane);
  __syncthreads();
  wait_for_earlier_kernels();
  const int32_t stage_count = stages.count();
  if (warp == 0) {
    for (int32_t i = 0; i < min(kStagesAhead, stage_count); ++i) {
      stages.fill(i, args.x, first_column, common.m, lane);
    }
  }

  float sums[kTiles][4] = {};
  int32_t stage = 0;
  for (int32_t at = first_step; at < last_step; ++at) {
    const Step now = next;
    if (at + 1 < last_step) next.load(group, at + 1, chunks, lane);
    const UnpackScales<T, kType> scales(now);
#pragma unroll
    for (int part = 0; part < Step::kChunks / kStageChunks; ++part, ++stage) {
      if (stage >= stage_count) break;
      if (warp == 0 && stage + kStagesAhead < stage_count) {
        stages.fill(stage + kStagesAhead, args.x, first_column, common.m, lane);
      }
      stages.full[stage % kStages].wait(static_cast<uint32_t>(stage / kStages) & 1);
      const std::byte* const x = stages.slot(stage) + row * kStageRowBytes + 8 * quad;
#pragma unroll
      for (int j = 0; j < kStageChunks; ++j) {
        const int chunk = part * kStageChunks + j;
        if (Step::kOf.columns != 256 && at * Step::kChunks + chunk >= chunks) break;
        uint32_t a[2][4];
        weight_operand<T, kType>(a, now, scales, chunk, quad);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const std::byte* const columns = x + t * (8 * kStageRowBytes) + 64 * j;
          const uint2 low = *reinterpret_cast<const uint2*>(columns);
          const uint2 high = *reinterpret_cast<const uint2*>(columns + 32);
          multiply_add<T>(sums[t], a[0], low.x, low.y);
          multiply_add<T>(sums[t], a[1], high.x, high.y);
        }
      }
      __syncwarp();
      if (lane == 0) stages.empty[stage % kStages].arrive();
    }
  }

  __syncthreads();                                       // the ring is free
  float* const left = reinterpret_cast<float*>(shared);  // [kColumns][kSumsPitch]
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      left[(8 * t + 2 * quad + i % 2) * kSumsPitch + warp * kBlocksRows + row + 8 * (i / 2)] =
          sums[t][i];
    }
  }
  if (args.splits > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  const int32_t first_row = first_group * kBlocksRows;
  const int32_t items = kColumns * kWideRows / args.splits;  // of this block
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < items;
       i += static_cast<int32_t>(blockDim.x)) {
    const int32_t item = rank * items + i;
    const int32_t column = item / kWideRows, of_block = item % kWideRows;
    if (first_row + of_block >= common.weight.rows || first_column + column >= common.m) continue;
    const float* const own = left + column * kSumsPitch + of_block;
    float sum = 0.0f;
    if (args.splits == 1) {
      sum = *own;
    } else {
      for (int32_t from = 0; from < args.splits; ++from) {
        sum += __uint_as_float(load_word_of_cluster(
            address_in_block(shared_address(own), static_cast<uint32_t>(from))));
      }
    }
    sum *= 1.0f / kRaised<T>;
    if (common.bias != nullptr) sum += common.bias[first_row + of_block];
    common.y.finish(first_column + column, first_row + of_block, sum, common.accumulates);
  }
  if (args.splits > 1) cluster_sync();  // nobody leaves while others read
}

}  // namespace headrace::gpu
