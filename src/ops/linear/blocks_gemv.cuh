// The kernel of blocks_gemv.h. A thread block has some packed groups (16 rows of W) and deals the
// stages of K of all of them to its warps in turn. Each warp keeps stages on their way into its own
// ring in shared memory (one lane starts the copies), from one group into the next, so that nobody
// waits for anybody but at the end of a round of groups, where the warps' sums meet. The first
// stages are on their way before earlier kernels have ended. x is whole in shared memory, in the
// order in which products read it.
#pragma once

#include "gpu/f16_range.cuh"
#include "ops/linear/blocks.cuh"
#include "ops/linear/blocks_gemv.h"
#include "ops/linear/packed_stage.cuh"

namespace headrace::gpu {

template <class T>
struct BlocksGemvArguments {
  BlocksArguments<T> common;
  RowsOf<const T> x;
  BlocksGemvPlan plan;
};

// A warp's way through the stages of its block's groups.
struct GemvTurn {
  int32_t group, stage;  // of the block's groups; of the group

  __device__ __forceinline__ void next(int32_t stages_of_group) {
    move(kBlocksGemvWarps, stages_of_group);
  }
  __device__ __forceinline__ void move(int32_t by, int32_t stages_of_group) {
    stage += by;
    while (stage >= stages_of_group) {
      stage -= stages_of_group;
      ++group;
    }
  }
};

struct BlocksGemvBarriers {
  Barrier arrived[kBlocksGemvWarps][kBlocksGemvStagesMax];
  bool beyond[kBlocksGemvRowsMax];  // whether a row of x is smaller than it was (f16_range.cuh)
};

// kRows: 1, or 8 for up to so many rows of x. Minima of one row are added up by the lanes that read
// them, which saves that every lane gets them.
template <class T, int kType, int kRows>
class BlocksGemvBlock {
  using Stage = PackedStage<kType>;
  static constexpr int kWarps = kBlocksGemvWarps, kThreads = kWarps * kWarpThreads;
  static constexpr bool kMinimum = kFormat<kType>.minimum;
  static constexpr bool kMinimaApart = kMinimum && kRows == 1;

 public:
  __device__ __forceinline__ BlocksGemvBlock(const BlocksGemvArguments<T>& args, std::byte* shared,
                                             BlocksGemvBarriers& barriers)
      : args_(args),
        common_(args.common),
        warp_(static_cast<int>(threadIdx.x) / kWarpThreads),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads),
        pair_(lane_ / 4),
        quad_(lane_ % 4),
        stages_of_group_(common_.weight.chunks / Stage::kChunks),
        x_stride_(args.plan.x_stride),
        arrived_(barriers.arrived[warp_]),
        beyond_(barriers.beyond),
        ring_(shared + warp_ * args.plan.stages * Stage::kBytes),
        x_(shared + kWarps * args.plan.stages * Stage::kBytes),
        x_sums_(reinterpret_cast<float*>(x_ + common_.m * x_stride_)),
        partial_(x_sums_ + (kMinimum ? common_.weight.chunks * Stage::kPartsOfChunk * kRows : 0)) {
    const auto block = static_cast<int32_t>(blockIdx.x);
    first_group_ = block * args.plan.share + min(block, args.plan.blocks_with_more);
    groups_ = args.plan.share + (block < args.plan.blocks_with_more ? 1 : 0);
    turn_.move(warp_, stages_of_group_);
    load_ = turn_;
  }

  // Before earlier kernels have ended: nobody writes W.
  __device__ __forceinline__ void ask_early() {
    if (lane_ == 0) {
      for (int32_t i = 0; i < args_.plan.stages; ++i) arrived_[i].init(1);
      fence_barrier_init();
    }
    __syncwarp();
    for (int32_t i = 0; i < args_.plan.stages; ++i) ask(i);
    if (threadIdx.x < kBlocksGemvRowsMax) beyond_[threadIdx.x] = false;
    __syncthreads();
  }

  // x as F16: of 32 columns quad c has columns 4c to 4c + 3 and 16 + 4c to 16 + 4c + 3 side by
  // side; and the sums of parts, [part][kRows].
  __device__ __forceinline__ void take_rows() {
    take_rows<false>(0, common_.m);
    __syncthreads();
    if constexpr (std::is_same_v<T, __half>) return;
    bool again = false;
    for (int32_t row = 0; row < common_.m; ++row) {
      if (!beyond_[row]) continue;
      take_rows<true>(row, row + 1);
      again = true;
    }
    if (again) __syncthreads();
  }

  __device__ __forceinline__ void multiply() {
    const int32_t round = args_.plan.round_groups;
    int buffer = 0;
#pragma unroll 1
    for (int32_t first = 0; first < groups_; first += round) {
      const int32_t count = min(round, groups_ - first);
#pragma unroll 1
      for (int32_t i = 0; i < count; ++i) {
        float sums[4] = {}, minima[2] = {};
#pragma unroll 1
        while (turn_.group == first + i) {
          arrived_[slot_].wait(phase_);
          add_stage(sums, minima);
          __syncwarp();
          ask(slot_);
          if (++slot_ == args_.plan.stages) {
            slot_ = 0;
            phase_ ^= 1;
          }
          turn_.next(stages_of_group_);
        }
        if constexpr (kMinimaApart) add_minima(sums, minima);
        leave(sums, buffer * round + i);
      }
      __syncthreads();
      finish(first, count, buffer * round);
      buffer ^= 1;
    }
  }

 private:
  // The next stage of this warp, if there is one, to a slot that nobody reads.
  __device__ __forceinline__ void ask(int32_t slot) {
    if (load_.group < groups_ && lane_ == 0) {
      const PackedGroup group = common_.weight.group(first_group_ + load_.group);
      std::byte* const to = ring_ + slot * Stage::kBytes;
      arrived_[slot].arrive_expecting(Stage::kBytes);
      copy_bytes(to, group.data + int64_t{load_.stage} * Stage::kQuantBytes, Stage::kQuantBytes,
                 arrived_[slot]);
      copy_bytes(to + Stage::kQuantBytes,
                 group.data + group.scales_at + int64_t{load_.stage} * Stage::kScaleBytes,
                 Stage::kScaleBytes, arrived_[slot]);
    }
    load_.next(stages_of_group_);
  }

  template <bool kSmaller>
  __device__ __forceinline__ void take_rows(int32_t first_row, int32_t last_row) {
    const int32_t chunks = common_.weight.chunks, items = (last_row - first_row) * chunks * 4;
#pragma unroll 1
    for (auto i = static_cast<int32_t>(threadIdx.x); i < items; i += kThreads) {
      const int32_t quad = i % 4, chunk = i / 4 % chunks, row = first_row + i / 4 / chunks;
      const T* const from = args_.x.row(row) + 32 * chunk + 4 * quad;
      const auto low = Vector<T, 4>::load(from), high = Vector<T, 4>::load(from + 16);
      Vector<__half, 8> operands;
      float sums[2] = {};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float x = to_float(e < 4 ? low.values[e] : high.values[e - 4]);
        if (!kSmaller && beyond_f16(x)) beyond_[row] = true;
        const int place = kNibbles<kType> && (e % 4 == 1 || e % 4 == 2) ? e ^ 3 : e;
        operands.values[place] = from_float<__half>(kSmaller ? x * kF16Smaller : x);
        sums[e / 4] += to_float(operands.values[place]);
      }
      operands.store(reinterpret_cast<__half*>(x_ + row * x_stride_ + chunk * 64 + quad * 16));
      if constexpr (kMinimum) leave_x_sums(sums, row, chunk, quad);
    }
  }
  // By the four lanes of a chunk of a row.
  __device__ __forceinline__ void leave_x_sums(float (&sums)[2], int32_t row, int32_t chunk,
                                               int32_t quad) {
#pragma unroll
    for (float& sum : sums) {
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    }
    if (quad != 0) return;
    float* const to = x_sums_ + chunk * Stage::kPartsOfChunk * kRows + row;
    if constexpr (Stage::kPartsOfChunk == 1) {
      to[0] = sums[0] + sums[1];
    } else {
      to[0] = sums[0];
      to[kRows] = sums[1];
    }
  }

  // sums += x times a stage's columns of 16 rows of W.
  __device__ __forceinline__ void add_stage(float (&sums)[4], float (&minima)[2]) const {
    const StageReader<kType> stage{ring_ + slot_ * Stage::kBytes, pair_, quad_};
    const int32_t first_chunk = turn_.stage * Stage::kChunks;
    const float* const x_sums = x_sums_ + first_chunk * Stage::kPartsOfChunk * kRows;
    PartScale own[Stage::kPartsOfLane][2];
#pragma unroll
    for (int i = 0; i < Stage::kPartsOfLane; ++i) {
      const int part = quad_ * Stage::kPartsOfLane + i;
      stage.scales(own[i], part);
      if constexpr (kMinimaApart) {
        minima[0] = fmaf(own[i][0].minimum, x_sums[part], minima[0]);
        minima[1] = fmaf(own[i][1].minimum, x_sums[part], minima[1]);
      }
    }
    const uint32_t x =
        shared_address(x_ + min(pair_, common_.m - 1) * x_stride_ + first_chunk * 64 + quad_ * 16);
#pragma unroll
    for (int j = 0; j < Stage::kChunks; ++j) {
      QuadDwords<kType> quads[2];
      stage.quads(quads, j);
      uint32_t a[2][4];
      if constexpr (kNibbles<kType>) {
        nibble_operand<kType>(a, quads);
      } else {
        quant_operand<__half, kType>(a, quads, quad_);
      }
      const uint4 b = load_four(x + static_cast<uint32_t>(j * 64));
      float products[4];
      if constexpr (Stage::kPartsOfChunk == 1) {
        multiply_first<__half>(products, a[0], b.x, b.y);
        multiply_add<__half>(products, a[1], b.z, b.w);
        add_scaled(sums, products, own, j, x_sums);
      } else {
        multiply_first<__half>(products, a[0], b.x, b.y);
        add_scaled(sums, products, own, 2 * j, x_sums);
        multiply_first<__half>(products, a[1], b.z, b.w);
        add_scaled(sums, products, own, 2 * j + 1, x_sums);
      }
    }
  }
  __device__ __forceinline__ void add_scaled(float (&sums)[4], const float (&products)[4],
                                             const PartScale (&own)[Stage::kPartsOfLane][2],
                                             int part, const float* x_sums) const {
    constexpr bool kHere = kMinimum && !kMinimaApart;
    float2 of_x{};
    if constexpr (kHere) {
      of_x = load_two(shared_address(x_sums + part * kRows + 2 * quad_));
    }
    add_part<kHere>(sums, share_scales<Stage::kPartsOfLane, kHere>(own, part), products, of_x);
  }
  // Four lanes have the minima of a row's parts.
  __device__ __forceinline__ void add_minima(float (&sums)[4], float (&minima)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      minima[half] += __shfl_xor_sync(0xffffffffu, minima[half], 1);
      minima[half] += __shfl_xor_sync(0xffffffffu, minima[half], 2);
      sums[2 * half] += minima[half];  // of the one row of x, which quad 0 has
    }
  }

  // [group of two rounds][warp][16 rows][m]
  __device__ __forceinline__ float* partial(int32_t group, int warp) const {
    return partial_ + (group * kWarps + warp) * kBlocksRows * common_.m;
  }
  __device__ __forceinline__ void leave(const float (&sums)[4], int32_t group) const {
    float* const to = partial(group, warp_);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 2 * quad_ + i % 2;
      if (column < common_.m) to[(2 * pair_ + i / 2) * common_.m + column] = sums[i];
    }
  }
  __device__ __forceinline__ void finish(int32_t first, int32_t count,
                                         int32_t first_partial) const {
    const int32_t rows = count * kBlocksRows;
    const int32_t first_row = (first_group_ + first) * kBlocksRows;
#pragma unroll 1
    for (auto i = static_cast<int32_t>(threadIdx.x); i < rows * common_.m; i += kThreads) {
      const int32_t column = i / rows, of_round = i % rows, row = first_row + of_round;
      if (row >= common_.weight.rows) continue;
      const float* const from = partial(first_partial + of_round / kBlocksRows, 0) +
                                of_round % kBlocksRows * common_.m + column;
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += from[warp * kBlocksRows * common_.m];
      if (!std::is_same_v<T, __half> && beyond_[column]) sum *= kF16Larger;
      if (common_.bias != nullptr) sum += common_.bias[row];
      common_.y.finish(column, row, sum, common_.accumulates);
    }
  }

  const BlocksGemvArguments<T>& args_;
  const BlocksArguments<T>& common_;
  const int warp_, lane_, pair_, quad_;
  const int32_t stages_of_group_, x_stride_;
  Barrier* const arrived_;
  bool* const beyond_;
  std::byte* const ring_;  // of this warp
  std::byte* const x_;
  float* const x_sums_;
  float* const partial_;
  int32_t first_group_, groups_;
  GemvTurn turn_{0, 0}, load_{0, 0};  // the stage to multiply next, the one to ask for next
  int32_t slot_ = 0;
  uint32_t phase_ = 0;
};

template <class T, int kType, int kRows>
__global__ void __launch_bounds__(kBlocksGemvWarps* kWarpThreads, 1)
    blocks_gemv(const __grid_constant__ BlocksGemvArguments<T> args) {
  extern __shared__ __align__(128) std::byte dynamic[];
  __shared__ BlocksGemvBarriers barriers;
  let_next_kernel_start();
  BlocksGemvBlock<T, kType, kRows> block(args, dynamic, barriers);
  block.ask_early();
  wait_for_earlier_kernels();  // in every thread that reads or overwrites what they wrote
  block.take_rows();
  block.multiply();
}

}  // namespace headrace::gpu
