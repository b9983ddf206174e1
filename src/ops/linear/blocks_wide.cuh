// The kernels of blocks_wide.h. A warp takes a packed group (16 rows of W), which it unpacks in
// registers; four warps are a warpgroup, whose 64 rows of W are one side of wgmma products and rows
// of x in shared memory the other. All warps of a block read the same x; the blocks of a cluster
// share K, and their sums meet in shared memory.
#pragma once

#include "gpu/bulk_copy.cuh"
#include "gpu/cluster.cuh"
#include "gpu/f16_range.cuh"
#include "gpu/wgmma.cuh"
#include "ops/linear/blocks.cuh"
#include "ops/linear/blocks_wide.h"

namespace headrace::gpu {

// A stage: so many chunks of 32 columns of the block's rows of x.
constexpr int kStageChunks = 4, kStages = 4, kStagesAhead = 2;
constexpr int kChunkBytesOfTile = 512;                 // 8 rows of x, 32 columns
constexpr int kWideRows = kBlocksWarps * kBlocksRows;  // of W
// Sums of a row of x, when they meet: some floats more than rows, so that columns lie in all banks.
constexpr int kSumsPitch = kWideRows + 4;

constexpr int wide_shared_bytes(int tiles) {
  const int stages = kStages * kStageChunks * kChunkBytesOfTile * tiles;
  const int sums = 8 * tiles * kSumsPitch * static_cast<int>(sizeof(float));
  return stages > sums ? stages : sums;
}

// --- x as the products read it ---

// Operand B of products of 16 columns, k along rows, without swizzling: 8 rows of x by 16 bytes are
// 128 bytes in one piece (a core matrix), two of them side by side are a tile's 16 columns. A lane
// unpacks columns 4c to 4c + 3 of 16 and gives them as k = 2c, 2c + 1, 2c + 8, 2c + 9: so the first
// core matrix has pairs of columns 0, 2, 4, 6, the second 1, 3, 5, 7. Rows and columns past the end
// are zeros. x becomes F16, in which weights keep three bits more than in BF16 and take half of the
// instructions.
//   [x_blocks][chunks][16 columns: 2][tiles][core matrix: 2][8 rows][16 bytes]
template <class T>
struct StageRowsArguments {
  RowsOf<const T> x;
  uint4* out;
  float* factors;     // by row of x: what its sums are multiplied by (f16_range.cuh)
  int32_t m, chunks;  // of x
  int32_t out_chunks, tiles;
};

constexpr int kStageRowsThreads = 256;

// 8 numbers times `factor` as F16.
template <class T>
__device__ __forceinline__ uint4 eight_halves(const T* from, float factor, bool& beyond) {
  if constexpr (std::is_same_v<T, __half>) return *reinterpret_cast<const uint4*>(from);
  const auto numbers = Vector<T, 8>::load(from);
  Vector<__half, 8> halves;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float x = to_float(numbers.values[e]) * factor;
    beyond |= beyond_f16(x);
    halves.values[e] = from_float<__half>(x);
  }
  return reinterpret_cast<const uint4&>(halves);
}

// This thread's pieces of a row, of 16 columns each. Whether one has a number beyond F16.
template <class T>
__device__ __forceinline__ bool stage_row(const StageRowsArguments<T>& args, int32_t row,
                                          float factor) {
  bool beyond = false;
  const int32_t rows = 8 * args.tiles;
#pragma unroll 1
  for (auto piece = static_cast<int32_t>(threadIdx.x); piece < 2 * args.out_chunks;
       piece += kStageRowsThreads) {
    const int32_t half = piece % 2, chunk = piece / 2;
    uint4 first{}, second{};  // columns 0 to 7 and 8 to 15
    if (row < args.m && chunk < args.chunks) {
      const T* const from = args.x.row(row) + 32 * chunk + 16 * half;
      first = eight_halves(from, factor, beyond);
      second = eight_halves(from + 8, factor, beyond);
    }
    const int64_t tile =
        ((int64_t{row / rows} * args.out_chunks + chunk) * 2 + half) * args.tiles + row % rows / 8;
    uint4* const to = args.out + tile * 16 + row % 8;
    to[0] = {first.x, first.z, second.x, second.z};
    to[8] = {first.y, first.w, second.y, second.w};
  }
  return beyond;
}

// A block a row.
template <class T>
__global__ void __launch_bounds__(kStageRowsThreads) stage_rows(StageRowsArguments<T> args) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto row = static_cast<int32_t>(blockIdx.x);
  const bool smaller = __syncthreads_or(stage_row(args, row, 1.0f)) != 0;
  if (smaller) stage_row(args, row, kF16Smaller);
  if (threadIdx.x == 0) args.factors[row] = smaller ? kF16Larger : 1.0f;
}

// sums += a b' of 64 rows of W and kN rows of x, 16 columns.
template <int kN>
struct WideProduct;

// clang-format off
#define HEADRACE_WIDE_PRODUCT(N, COUNT, SUMS, REST, ...) \
  template <> \
  struct WideProduct<N> { \
    __device__ __forceinline__ static void add(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b) { \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" SUMS "}, " REST ", 1, 1, 1, 0;\n" \
        : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
    } \
  };
#define HEADRACE_SUMS_8(at) "+f"(d[at]), "+f"(d[at + 1]), "+f"(d[at + 2]), "+f"(d[at + 3]), "+f"(d[at + 4]), "+f"(d[at + 5]), "+f"(d[at + 6]), "+f"(d[at + 7])
#define HEADRACE_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define HEADRACE_NAMES_16 HEADRACE_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define HEADRACE_NAMES_32 HEADRACE_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
HEADRACE_WIDE_PRODUCT(16, 8, HEADRACE_NAMES_8, "{%8, %9, %10, %11}, %12", HEADRACE_SUMS_8(0))
HEADRACE_WIDE_PRODUCT(32, 16, HEADRACE_NAMES_16, "{%16, %17, %18, %19}, %20", HEADRACE_SUMS_8(0), HEADRACE_SUMS_8(8))
HEADRACE_WIDE_PRODUCT(64, 32, HEADRACE_NAMES_32, "{%32, %33, %34, %35}, %36", HEADRACE_SUMS_8(0), HEADRACE_SUMS_8(8), HEADRACE_SUMS_8(16), HEADRACE_SUMS_8(24))
#undef HEADRACE_WIDE_PRODUCT
#undef HEADRACE_NAMES_32
#undef HEADRACE_NAMES_16
#undef HEADRACE_NAMES_8
#undef HEADRACE_SUMS_8
// clang-format on

// Where a product finds 16 columns of all tiles: core matrices 128 bytes apart along k, tiles 256.
__device__ __forceinline__ uint64_t x_operand(uint32_t address) {
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{128 >> 4} << 16 | uint64_t{256 >> 4} << 32;
}

// --- the product ---

template <class T>
struct WideArguments {
  BlocksArguments<T> common;
  const std::byte* x;    // as stage_rows() leaves it
  const float* factors;  // too
  int32_t x_chunks;      // of it
  int32_t x_blocks;
  int32_t splits;
};

// Weights are a power of two larger while they are multiplied: scales of small ones would else be
// below what F16 holds in full.
inline constexpr float kRaised = 64.0f;

// Scale and minimum of a part of one row, as a product with quants wants them.
struct UnpackScale {
  uint32_t pair;  // scale below, minimum above

  __device__ __forceinline__ explicit UnpackScale(const PartScale& scale)
      : pair(packed<__half>(scale.scale * kRaised, scale.minimum * kRaised)) {}
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

// The part scales that this lane has read, of rows g and g + 8.
template <int kType>
struct UnpackScales {
  using Step = GroupStep<kType>;
  UnpackScale of[Step::kPartsOfLane][2];

  __device__ __forceinline__ explicit UnpackScales(const Step& step)
      : UnpackScales(step, std::make_integer_sequence<int, Step::kPartsOfLane>()) {}
  // Of part `part` of the step, of row g + 8 `half`.
  __device__ __forceinline__ UnpackScale shared(int part, int half) const {
    return of[part % Step::kPartsOfLane][half].from_lane(part / Step::kPartsOfLane);
  }

 private:
  template <int... kParts>
  __device__ __forceinline__ UnpackScales(const Step& step, std::integer_sequence<int, kParts...>)
      : of{{UnpackScale(scale_of<kType>(step.raw[kParts][0])),
            UnpackScale(scale_of<kType>(step.raw[kParts][1]))}...} {}
};

// Weights of 32 columns as the A operand of two products of 16 columns.
template <int kType>
__device__ __forceinline__ void weight_operand(uint32_t (&a)[2][4], const GroupStep<kType>& step,
                                               const UnpackScales<kType>& scales, int chunk,
                                               int quad) {
  constexpr int kParts = GroupStep<kType>::kPartsOfChunk;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t low = stored_quants<kType, 0>(step.quads[chunk][half], quad);
    const uint32_t high = stored_quants<kType, 1>(step.quads[chunk][half], quad);
    const UnpackScale first = scales.shared(chunk * kParts, half);
    const UnpackScale second = kParts == 1 ? first : scales.shared(chunk * kParts + 1, half);
    a[0][half] = first.weights<kType, 0>(low);
    a[0][2 + half] = first.weights<kType, 1>(low);
    a[1][half] = second.weights<kType, 0>(high);
    a[1][2 + half] = second.weights<kType, 1>(high);
  }
}

// The stages of a block's rows of x on their way through shared memory. Stage i is chunks
// kStageChunks i and on of this block's share of K.
template <int kTiles>
struct WideStages {
  static constexpr int kBytes = kStageChunks * kChunkBytesOfTile * kTiles;
  std::byte* ring;        // [kStages][kBytes]
  Barrier* full;          // [kStages]
  Barrier* empty;         // [kStages] each warp arrives
  const std::byte* from;  // the first stage

  __device__ __forceinline__ uint32_t address(int32_t i) const {
    return shared_address(ring) + static_cast<uint32_t>(i % kStages * kBytes);
  }
  __device__ __forceinline__ void init() const {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(1);
      empty[i].init(kBlocksWarps);
    }
    fence_barrier_init();
  }
  __device__ __forceinline__ void begin(int32_t count) const {
    if (threadIdx.x == 0) {
      for (int32_t i = 0; i < min(kStagesAhead, count); ++i) fill(i);
    }
    __syncwarp();
  }
  // Where stage i is, once it has come. One thread asks for the one that is kStagesAhead of it.
  __device__ __forceinline__ uint32_t next(int32_t i, int32_t count) const {
    if (threadIdx.x == 0 && i + kStagesAhead < count) fill(i + kStagesAhead);
    __syncwarp();
    full[i % kStages].wait(static_cast<uint32_t>(i / kStages) & 1);
    return address(i);
  }
  // By one thread.
  __device__ __forceinline__ void fill(int32_t i) const {
    const int32_t at = i % kStages;
    if (i >= kStages) empty[at].wait(static_cast<uint32_t>(i / kStages - 1) & 1);
    full[at].arrive_expecting(kBytes);
    copy_bytes(ring + at * kBytes, from + int64_t{i} * kBytes, kBytes, full[at]);
  }
};

// Where a block stands among those of its product.
struct WidePlace {
  int32_t rank;  // in the cluster
  int32_t first_group, x_block;
  int32_t first_step, last_step;  // of K, in kChunks chunks each

  template <int kChunks, class T>
  static __device__ __forceinline__ WidePlace of(const WideArguments<T>& args) {
    static_assert(kChunks % kStageChunks == 0 && kStageChunks % 2 == 0);
    const int32_t rank = args.splits > 1 ? static_cast<int32_t>(cluster_rank()) : 0;
    const int32_t tile = static_cast<int32_t>(blockIdx.x) / args.splits;
    const int32_t steps = (args.common.weight.chunks + kChunks - 1) / kChunks;
    const int32_t share = (steps + args.splits - 1) / args.splits;
    const int32_t first = min(rank * share, steps);
    return {rank, tile / args.x_blocks * kBlocksWarps, tile % args.x_blocks, first,
            min(first + share, steps)};
  }
};

// The blocks that share a product's K, or the threads of one that has it alone.
__device__ __forceinline__ void sync_sharers(int32_t splits) {
  if (splits > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
}

// This block's share of y, from the sums that the blocks of the cluster have left.
template <class T, int kColumns>
__device__ __forceinline__ void add_up_wide(const WideArguments<T>& args, const float* left,
                                            int32_t rank, int32_t first_row, int32_t first_column) {
  const BlocksArguments<T>& common = args.common;
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
    sum *= args.factors[first_column + column] / kRaised;
    if (common.bias != nullptr) sum += common.bias[first_row + of_block];
    common.y.finish(first_column + column, first_row + of_block, sum, common.accumulates);
  }
}

template <class T, int kType, int kTiles>
__global__ void __launch_bounds__(kBlocksWarps* kWarpThreads, 2)
    multiply_wide(WideArguments<T> args) {
  using Step = GroupStep<kType>;
  constexpr int kColumns = 8 * kTiles, kStagesOfStep = Step::kChunks / kStageChunks;
  let_next_kernel_start();
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ Barrier barriers[2 * kStages];
  const BlocksArguments<T>& common = args.common;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int row = lane / 4, quad = lane % 4;
  const auto [rank, first_group, x_block, first_step, last_step] =
      WidePlace::of<Step::kChunks>(args);
  const int32_t stage_count = (last_step - first_step) * kStagesOfStep;
  // Warps past the last group repeat it: their sums are not stored.
  const PackedGroup group = common.weight.group(min(first_group + warp, common.groups - 1));

  const int64_t first_chunk = int64_t{x_block} * args.x_chunks + first_step * Step::kChunks;
  const WideStages<kTiles> stages{shared, barriers, barriers + kStages,
                                  args.x + first_chunk * (kChunkBytesOfTile * kTiles)};
  if (threadIdx.x == 0) stages.init();
  Step next;
  if (first_step < last_step) next.load(group, first_step, common.weight.chunks, lane);
  __syncthreads();
  wait_for_earlier_kernels();
  stages.begin(stage_count);

  float sums[4 * kTiles] = {};
  uint32_t a[2][2][4];  // of a chunk that is multiplied and of the one that is unpacked meanwhile
  int32_t stage = 0;
  for (int32_t at = first_step; at < last_step; ++at) {
    const Step now = next;
    if (at + 1 < last_step) next.load(group, at + 1, common.weight.chunks, lane);
    const UnpackScales<kType> scales(now);
#pragma unroll
    for (int part = 0; part < kStagesOfStep; ++part, ++stage) {
      const uint32_t x = stages.next(stage, stage_count);
#pragma unroll
      for (int j = 0; j < kStageChunks; ++j) {
        auto& operand = a[j % 2];
        weight_operand<kType>(operand, now, scales, part * kStageChunks + j, quad);
        products_fence();
        const uint32_t of_chunk = x + static_cast<uint32_t>(j * kChunkBytesOfTile * kTiles);
        WideProduct<kColumns>::add(sums, operand[0], x_operand(of_chunk));
        WideProduct<kColumns>::add(sums, operand[1], x_operand(of_chunk + 256 * kTiles));
        products_commit();
        products_wait<1>();
        // The stage before this one has been read.
        if (j == 0 && stage > 0 && lane == 0) stages.empty[(stage - 1) % kStages].arrive();
      }
    }
  }
  products_wait<0>();
  pin(sums);

  __syncthreads();                                       // the ring is free
  float* const left = reinterpret_cast<float*>(shared);  // [kColumns][kSumsPitch]
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      left[(8 * t + 2 * quad + i % 2) * kSumsPitch + warp * kBlocksRows + row + 8 * (i / 2)] =
          sums[4 * t + i];
    }
  }
  sync_sharers(args.splits);
  add_up_wide<T, kColumns>(args, left, rank, first_group * kBlocksRows, x_block * kColumns);
  if (args.splits > 1) cluster_sync();  // nobody leaves while others read
}

}  // namespace headrace::gpu
