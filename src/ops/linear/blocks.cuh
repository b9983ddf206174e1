// The kernels of blocks.h. 16 rows of W are one packed group and one side of m16n8k16 products, 8
// rows of x (a tile) the other; warps share K and their sums meet in shared memory, in one order.
//
//   multiply_few    one tile of x. A block goes through some groups, all of its warps through the
//                   steps of each; what a warp reads of W is asked for a step ahead, over the ends
//                   of groups too, and first of all before earlier kernels have ended.
//   multiply_many   two tiles of x, which arrange_rows() has laid out as products want them: a lane
//                   reads what 32 columns need of it in one piece. Warps of a block read the same x
//                   and W of several groups.
//   unpack_blocks   rows of W as a dense matrix.
#pragma once

#include "gpu/mma.cuh"
#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/blocks.h"
#include "ops/packing/block_types.cuh"

namespace headrace::gpu {

constexpr int kBlocksWarps = 8;  // at most
constexpr int kBlocksRows = static_cast<int>(kLinearGroupRows);

// Rows of f32 or of another type, chosen at run time.
template <class T>
struct MixedRows {
  std::byte* data;
  int64_t stride;  // bytes
  bool f32;

  __device__ __forceinline__ void finish(int64_t row, int64_t column, float sum,
                                         bool accumulates) const {
    std::byte* at = data + row * stride;
    if (f32) {
      float& y = reinterpret_cast<float*>(at)[column];
      y = accumulates ? sum + y : sum;
    } else {
      T& y = reinterpret_cast<T*>(at)[column];
      y = from_float<T>(accumulates ? sum + to_float(y) : sum);
    }
  }
};

template <class T>
struct BlocksArguments {
  PackedSegment weight;
  const float* bias;  // of the segment's rows, or null
  MixedRows<T> y;     // its columns are the segment's rows
  int32_t m;
  int32_t groups;
  bool accumulates;
};

template <class T>
BlocksArguments<T> blocks_arguments(const LinearArgs& args, const LinearWeight::Segment& segment) {
  return {.weight = packed_segment(segment, args.weight->k()),
          .bias = args.bias == nullptr ? nullptr : args.bias + segment.first_row,
          .y = {.data = args.y.data + segment.first_row * dtype_info(args.y.dtype).block_bytes,
                .stride = args.y.row_stride,
                .f32 = args.y.dtype == DType::kF32},
          .m = static_cast<int32_t>(args.x.rows()),
          .groups = static_cast<int32_t>(segment.group_count),
          .accumulates = args.output == LinearOutput::kAccumulate};
}

// The part scales that this lane has read.
template <int kType>
struct OwnScales {
  PartScale of[GroupStep<kType>::kPartsOfLane][2];

  __device__ __forceinline__ explicit OwnScales(const GroupStep<kType>& step) {
#pragma unroll
    for (int i = 0; i < GroupStep<kType>::kPartsOfLane; ++i) {
      of[i][0] = scale_of<kType>(step.raw[i][0]);
      of[i][1] = scale_of<kType>(step.raw[i][1]);
    }
  }
};

// Quants of 32 columns as the A operand of two products of 16 columns: quads `quad`, quads 4 +
// quad.
template <class T, int kType>
__device__ __forceinline__ void quant_operand(uint32_t (&a)[2][4],
                                              const QuadDwords<kType> (&quads)[2], int quad) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t low = stored_quants<kType, 0>(quads[half], quad);
    const uint32_t high = stored_quants<kType, 1>(quads[half], quad);
    a[0][half] = quant_pair<T, kType, 0>(low);
    a[0][2 + half] = quant_pair<T, kType, 1>(low);
    a[1][half] = quant_pair<T, kType, 0>(high);
    a[1][2 + half] = quant_pair<T, kType, 1>(high);
  }
}

// sums += scale * products (+ minimum * sums of x), of the accumulators of one part.
template <bool kMinimum>
__device__ __forceinline__ void add_part(float (&sums)[4], const RowScales& scales,
                                         const float (&products)[4], float2 x_sums) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const PartScale& scale = scales.of[i / 2];
    sums[i] = fmaf(scale.scale, products[i], sums[i]);
    if constexpr (kMinimum)
      sums[i] = fmaf(scale.minimum, i % 2 == 0 ? x_sums.x : x_sums.y, sums[i]);
  }
}

// --- one tile of x ---

template <class T>
struct FewArguments {
  BlocksArguments<T> common;
  RowsOf<const T> x;
};

template <class T, int kType>
__device__ __forceinline__ void multiply_step(float (&sums)[4], const GroupStep<kType>& step,
                                              const T* x, int32_t first_chunk, int32_t chunks,
                                              int quad) {
  using Step = GroupStep<kType>;
  constexpr bool kMinimum = Step::kOf.minimum;
  const OwnScales<kType> own(step);
  const uint32_t one = packed<T>(1.0f, 1.0f);
  const uint32_t ones[4] = {one, one, one, one};
#pragma unroll
  for (int j = 0; j < Step::kChunks; ++j) {
    if (first_chunk + j >= chunks) break;
    uint32_t a[2][4];
    quant_operand<T, kType>(a, step.quads[j], quad);
    const T* columns = x + 32 * (first_chunk + j) + 4 * quad;
    const uint2 b[2] = {*reinterpret_cast<const uint2*>(columns),
                        *reinterpret_cast<const uint2*>(columns + 16)};
#pragma unroll
    for (int p = 0; p < Step::kPartsOfChunk; ++p) {
      float products[4] = {}, x_sums[4] = {};
#pragma unroll
      for (int i = 0; i < 2 / Step::kPartsOfChunk; ++i) {
        multiply_add<T>(products, a[p + i], b[p + i].x, b[p + i].y);
        if constexpr (kMinimum) multiply_add<T>(x_sums, ones, b[p + i].x, b[p + i].y);
      }
      add_part<kMinimum>(
          sums, share_scales<Step::kPartsOfLane, kMinimum>(own.of, j * Step::kPartsOfChunk + p),
          products, {x_sums[0], x_sums[1]});
    }
  }
}

// A warp's turns at the steps of several groups, one after the other.
struct Turns {
  int32_t group, step;
  int32_t first_step, stride, steps, last_group;

  __device__ __forceinline__ Turns(int32_t first_group, int32_t last_group_in, int32_t warp,
                                   int32_t warps, int32_t steps_in)
      : group(first_group),
        step(warp),
        first_step(warp),
        stride(warps),
        steps(steps_in),
        last_group(warp < steps_in ? last_group_in : first_group) {}
  __device__ __forceinline__ bool left() const { return group < last_group; }
  __device__ __forceinline__ void next() {
    step += stride;
    if (step < steps) return;
    step = first_step;
    ++group;
  }
};

constexpr int kGroupsMax = 8;  // of a block

template <class T, int kType>
__global__ void __launch_bounds__(kBlocksWarps* kWarpThreads, 2)
    multiply_few(FewArguments<T> args, int32_t groups_a_block) {
  using Step = GroupStep<kType>;
  let_next_kernel_start();
  __shared__ float partial[kGroupsMax][kBlocksWarps][kBlocksRows][8 + 1];
  const BlocksArguments<T>& common = args.common;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
  const int row = lane / 4, quad = lane % 4;
  const int32_t chunks = common.weight.chunks;
  const int32_t steps = (chunks + Step::kChunks - 1) / Step::kChunks;
  const int32_t first_group = static_cast<int32_t>(blockIdx.x) * groups_a_block;
  const int32_t last_group = min(first_group + groups_a_block, common.groups);

  Turns turn(first_group, last_group, warp, warps, steps);
  Step next;
  if (turn.left()) next.load(common.weight.group(turn.group), turn.step, chunks, lane);
  wait_for_earlier_kernels();
  const T* x = args.x.row(min(row, common.m - 1));  // rows past the end are not stored

  float sums[4] = {};
  while (turn.left()) {
    const Step now = next;
    const Turns current = turn;
    turn.next();
    if (turn.left()) next.load(common.weight.group(turn.group), turn.step, chunks, lane);
    multiply_step<T, kType>(sums, now, x, current.step * Step::kChunks, chunks, quad);
    if (turn.group == current.group) continue;
    auto& of_group = partial[current.group - first_group][warp];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      of_group[row + 8 * (i / 2)][2 * quad + i % 2] = sums[i];
      sums[i] = 0.0f;
    }
  }
  __syncthreads();
  const int32_t first_row = first_group * kBlocksRows;
  const int rows = (last_group - first_group) * kBlocksRows;
  for (int i = static_cast<int>(threadIdx.x); i < rows * 8; i += static_cast<int>(blockDim.x)) {
    const int of_block = i % rows, column = i / rows;
    if (first_row + of_block >= common.weight.rows || column >= common.m) continue;
    float sum = 0.0f;
    for (int from = 0; from < min(warps, steps); ++from) {
      sum += partial[of_block / kBlocksRows][from][of_block % kBlocksRows][column];
    }
    if (common.bias != nullptr) sum += common.bias[first_row + of_block];
    common.y.finish(column, first_row + of_block, sum, common.accumulates);
  }
}

// --- more tiles of x ---

constexpr int kManyTiles = 2;
static_assert(8 * kManyTiles == kArrangedRows);

// Rows of x as multiply_many() reads them: of 8 kManyTiles rows and a chunk of 32 columns a lane's
// columns 4c to 4c + 3 and 16 + 4c to 16 + 4c + 3 of row g of each tile, side by side; and the sums
// of columns 0 to 15 and 16 to 31, or of all 32. Rows past the end are zeros.
struct ArrangedRows {
  uint4* operands;  // [rows / (8 kManyTiles)][chunks][kManyTiles][32]
  float* sums;      // [rows / (8 kManyTiles)][chunks][kManyTiles][3][8]: 0 to 15, 16 to 31, all
};
constexpr int kSumsOfTile = 3 * 8;
static_assert(kSumsOfTile * sizeof(float) == kArrangedSumBytes);

// kQuads: rows of x lie on 8 bytes. Else their elements are read one by one.
template <class T, bool kQuads>
__global__ void __launch_bounds__(kBlocksWarps* kWarpThreads)
    arrange_rows(RowsOf<const T> x, ArrangedRows out, int32_t m, int32_t chunks, int32_t pieces) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int32_t piece =  // a tile's chunk
      static_cast<int32_t>(blockIdx.x * kBlocksWarps + threadIdx.x / kWarpThreads);
  if (piece >= pieces) return;
  const int32_t tile = piece / kManyTiles / chunks * kManyTiles + piece % kManyTiles;
  const int32_t row = tile * 8 + lane / 4, chunk = piece / kManyTiles % chunks;
  uint2 halves[2] = {};
  if (row < m) {
    const T* columns = x.row(row) + 32 * chunk + 4 * (lane % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kQuads) {
        halves[half] = *reinterpret_cast<const uint2*>(columns + 16 * half);
      } else {
        T* to = reinterpret_cast<T*>(&halves[half]);
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = columns[16 * half + i];
      }
    }
  }
  out.operands[int64_t{piece} * kWarpThreads + lane] = {halves[0].x, halves[0].y, halves[1].x,
                                                        halves[1].y};
  float sums[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const T* values = reinterpret_cast<const T*>(&halves[half]);
    sums[half] =
        (to_float(values[0]) + to_float(values[1])) + (to_float(values[2]) + to_float(values[3]));
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
  }
  if (lane % 4 != 0) return;
  float* to = out.sums + int64_t{piece} * kSumsOfTile + lane / 4;
  to[0] = sums[0];
  to[8] = sums[1];
  to[16] = sums[0] + sums[1];
}

template <class T>
struct ManyArguments {
  BlocksArguments<T> common;
  ArrangedRows x;
  int32_t x_blocks;   // of 8 kManyTiles rows
  int32_t row_warps;  // warps of a block that take different groups; the others share K with them
};

// What a chunk's products need of x. It is read by plain loads: the kernel before wrote it, so that
// it is not constant while this one runs.
template <int kType>
struct ChunkOfX {
  static constexpr int kSums = GroupStep<kType>::kPartsOfChunk;
  uint4 b[kManyTiles];
  float2 sums[kManyTiles][kSums];  // of this lane's rows 2c and 2c + 1, of each part

  __device__ __forceinline__ void load(const uint4* operands, const float* all_sums, int32_t chunk,
                                       int lane) {
#pragma unroll
    for (int t = 0; t < kManyTiles; ++t) {
      const int32_t piece = chunk * kManyTiles + t;
      b[t] = operands[int64_t{piece} * kWarpThreads + lane];
      if constexpr (GroupStep<kType>::kOf.minimum) {
        const float* of_tile = all_sums + int64_t{piece} * kSumsOfTile + 2 * (lane % 4);
#pragma unroll
        for (int p = 0; p < kSums; ++p) {
          sums[t][p] = *reinterpret_cast<const float2*>(of_tile + (kSums == 1 ? 16 : 8 * p));
        }
      }
    }
  }
};

template <class T, int kType>
__device__ __forceinline__ void multiply_chunk(float (&sums)[kManyTiles][4],
                                               const GroupStep<kType>& step, int j,
                                               const OwnScales<kType>& own,
                                               const ChunkOfX<kType>& x, int quad) {
  using Step = GroupStep<kType>;
  constexpr bool kMinimum = Step::kOf.minimum;
  uint32_t a[2][4];
  quant_operand<T, kType>(a, step.quads[j], quad);
  RowScales scales[Step::kPartsOfChunk];
#pragma unroll
  for (int p = 0; p < Step::kPartsOfChunk; ++p) {
    scales[p] = share_scales<Step::kPartsOfLane, kMinimum>(own.of, j * Step::kPartsOfChunk + p);
  }
#pragma unroll
  for (int t = 0; t < kManyTiles; ++t) {
    const uint4 b = x.b[t];
    float first[4] = {}, second[4] = {};
    multiply_add<T>(first, a[0], b.x, b.y);
    if constexpr (Step::kPartsOfChunk == 1) {
      multiply_add<T>(first, a[1], b.z, b.w);
      add_part<kMinimum>(sums[t], scales[0], first, x.sums[t][0]);
    } else {
      multiply_add<T>(second, a[1], b.z, b.w);
      add_part<kMinimum>(sums[t], scales[0], first, x.sums[t][0]);
      add_part<kMinimum>(sums[t], scales[1], second, x.sums[t][1]);
    }
  }
}

template <class T, int kType>
__global__ void __launch_bounds__(kBlocksWarps* kWarpThreads, 2)
    multiply_many(ManyArguments<T> args) {
  using Step = GroupStep<kType>;
  let_next_kernel_start();
  constexpr int kColumns = 8 * kManyTiles;
  __shared__ float partial[kBlocksWarps][kBlocksRows][kColumns + 1];
  const BlocksArguments<T>& common = args.common;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int row = lane / 4, quad = lane % 4;
  const int splits = kBlocksWarps / args.row_warps, split = warp / args.row_warps;
  const int32_t first_group = static_cast<int32_t>(blockIdx.x) / args.x_blocks * args.row_warps;
  const int32_t x_block = static_cast<int32_t>(blockIdx.x) % args.x_blocks;
  const int32_t chunks = common.weight.chunks;
  const int32_t steps = (chunks + Step::kChunks - 1) / Step::kChunks;
  // Warps past the last group repeat it: their sums are not stored.
  const PackedGroup group =
      common.weight.group(min(first_group + warp % args.row_warps, common.groups - 1));

  Step next;
  if (split < steps) next.load(group, split, chunks, lane);
  wait_for_earlier_kernels();
  const int64_t pieces = int64_t{x_block} * chunks * kManyTiles;
  const uint4* operands = args.x.operands + pieces * kWarpThreads;
  const float* x_sums = args.x.sums + pieces * kSumsOfTile;

  float sums[kManyTiles][4] = {};
  ChunkOfX<kType> x_next;
  x_next.load(operands, x_sums, min(split * Step::kChunks, chunks - 1), lane);
  for (int32_t step = split; step < steps; step += splits) {
    const Step now = next;
    const int32_t after = step + splits;
    if (after < steps) next.load(group, after, chunks, lane);
    const OwnScales<kType> own(now);
#pragma unroll
    for (int j = 0; j < Step::kChunks; ++j) {
      const ChunkOfX<kType> x = x_next;
      const int32_t chunk = j + 1 < Step::kChunks ? step * Step::kChunks + j + 1  // the one after
                                                  : after * Step::kChunks;
      x_next.load(operands, x_sums, min(chunk, chunks - 1), lane);
      // A block of 256 columns is whole steps.
      const bool there = Step::kOf.columns == 256 || step * Step::kChunks + j < chunks;
      if (there) multiply_chunk<T, kType>(sums, now, j, own, x, quad);
    }
  }
#pragma unroll
  for (int t = 0; t < kManyTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partial[warp][row + 8 * (i / 2)][8 * t + 2 * quad + i % 2] = sums[t][i];
    }
  }
  __syncthreads();
  const int32_t first_row = first_group * kBlocksRows, first_column = x_block * kColumns;
  const int rows = args.row_warps * kBlocksRows;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kColumns;
       i += static_cast<int>(blockDim.x)) {
    const int of_block = i % rows, column = i / rows;
    if (first_row + of_block >= common.weight.rows || first_column + column >= common.m) continue;
    float sum = 0.0f;
    for (int from = 0; from < splits; ++from) {
      sum +=
          partial[from * args.row_warps + of_block / kBlocksRows][of_block % kBlocksRows][column];
    }
    if (common.bias != nullptr) sum += common.bias[first_row + of_block];
    common.y.finish(first_column + column, first_row + of_block, sum, common.accumulates);
  }
}

// --- rows as a dense matrix ---

// Rows of whole groups as a dense matrix [rows, K]; a warp a step of a group.
template <class T>
struct UnpackArguments {
  PackedSegment weight;
  int32_t first_group;
  T* out;  // of row 16 first_group
  int32_t k;
};

// Lane c of four has quads c and 4 + c of 32 columns, and gets columns 8c to 8c + 7.
__device__ __forceinline__ uint4 eight_columns(const uint2 (&quads)[2], int quad) {
  // Lanes 0 and 1 are given first halves, lanes 2 and 3 second ones, each from two lanes.
  uint2 from[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int source = 2 * (quad % 2) + i;
    const uint2 low = {__shfl_sync(0xffffffffu, quads[0].x, source, 4),
                       __shfl_sync(0xffffffffu, quads[0].y, source, 4)};
    const uint2 high = {__shfl_sync(0xffffffffu, quads[1].x, source, 4),
                        __shfl_sync(0xffffffffu, quads[1].y, source, 4)};
    from[i] = quad < 2 ? low : high;
  }
  return {from[0].x, from[0].y, from[1].x, from[1].y};
}

template <class T, int kType>
__global__ void __launch_bounds__(kBlocksWarps* kWarpThreads)
    unpack_blocks(UnpackArguments<T> args) {
  using Step = GroupStep<kType>;
  let_next_kernel_start();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int row = lane / 4, quad = lane % 4;
  const int32_t chunks = args.weight.chunks;
  const auto step_index =
      static_cast<int32_t>(blockIdx.x * kBlocksWarps + threadIdx.x / kWarpThreads);
  if (step_index * Step::kChunks >= chunks) return;
  const auto of_launch = static_cast<int32_t>(blockIdx.y);
  Step step;
  step.load(args.weight.group(args.first_group + of_launch), step_index, chunks, lane);
  const OwnScales<kType> own(step);
  wait_for_earlier_kernels();
#pragma unroll
  for (int j = 0; j < Step::kChunks; ++j) {
    const int32_t chunk = step_index * Step::kChunks + j;
    if (chunk >= chunks) break;
    uint2 quads[2][2];  // [rows g, g + 8][quads c, 4 + c]: four columns each
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowScales scales = share_scales<Step::kPartsOfLane, Step::kOf.minimum>(
          own.of, j * Step::kPartsOfChunk + half * Step::kPartsOfChunk / 2);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t stored = half == 0 ? stored_quants<kType, 0>(step.quads[j][r], quad)
                                          : stored_quants<kType, 1>(step.quads[j][r], quad);
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          values[i] = fmaf(scales.of[r].scale, quant<kType>(stored, i), scales.of[r].minimum);
        }
        quads[r][half] = {packed<T>(values[0], values[1]), packed<T>(values[2], values[3])};
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 columns = eight_columns(quads[r], quad);
      const int64_t out_row = int64_t{of_launch} * kBlocksRows + row + 8 * r;
      if (args.first_group * kBlocksRows + out_row >= args.weight.rows) continue;
      *reinterpret_cast<uint4*>(args.out + out_row * args.k + 32 * chunk + 8 * quad) = columns;
    }
  }
}

}  // namespace headrace::gpu
