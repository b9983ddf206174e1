// The kernel of blocks_gemv.h. A thread block has some packed groups (16 rows of W) and deals the
// stages of K of all of them to its warps. Each warp keeps stages on their way into its own ring in
// shared memory (an elected lane starts the copies), from one group into the next, so that nobody
// waits for anybody but at the end of a round of groups, where the warps' sums meet. The first
// stages are on their way before earlier kernels have ended, the others behind x, which would wait
// for them in memory's queues. x is whole in shared memory, in the order in which products read it,
// normalised where a norm stands before the product.
//
// Several rows of x are multiplied in F16, by quants that have become F16.
//
// One row becomes integers of 16 bits, each part of K with a scale of its own, and quants are
// multiplied as the bytes that they are. The row would fill one of a product's eight columns: four
// parts of K take two columns each instead, one for the high bytes of x and one for the low ones. A
// lane has zeros where it is not its part's turn, so that sums of parts come out apart, in the
// lanes that have read their scales.
#pragma once

#include "gpu/elect.cuh"
#include "gpu/f16_range.cuh"
#include "gpu/mma_bytes.cuh"
#include "ops/linear/blocks.cuh"
#include "ops/linear/blocks_gemv.h"
#include "ops/linear/blocks_gemv_layout.h"
#include "ops/linear/packed_stage.cuh"
#include "ops/rows/activation_cuda.cuh"

namespace headrace::gpu {

template <class T>
struct BlocksGemvArguments {
  BlocksArguments<T> common;
  RowsOf<const T> x;
  const float* norm;  // [K], or null
  float eps;
  // Groups are then dealt in pairs, one of gate and the one of up.
  bool gated;
  Activation activation;
  BlocksGemvPlan plan;
};

struct BlocksGemvBarriers {
  Barrier arrived[kBlocksGemvWarps][kBlocksGemvStagesMax];
  Barrier norm;                     // the norm's weights
  Barrier x;                        // one row, as it is
  bool beyond[kBlocksGemvRowsMax];  // whether a row of x is smaller than it was (f16_range.cuh)
  float squares[kBlocksGemvRowsMax][kBlocksGemvWarps];
};
static_assert(sizeof(BlocksGemvBarriers) <= kBlocksGemvBarrierBytes);

// kRows: 1, or 8 for up to so many rows of x.
template <class T, int kType, int kRows>
class BlocksGemvBlock {
  using Stage = PackedStage<kType>;
  static constexpr int kWarps = kBlocksGemvWarps, kThreads = kWarps * kWarpThreads;
  static constexpr bool kMinimum = kFormat<kType>.minimum;
  static constexpr bool kOneRow = kRows == 1;
  // Of one row of x: parts that are multiplied before their sums are scaled.
  static constexpr int kRoundParts = 4;  // packed_stage.cuh's rounds
  static constexpr int kRoundChunks = kRoundParts / Stage::kPartsOfChunk;
  static_assert(Stage::kParts % kRoundParts == 0);
  // Of a warp's ring, asked for before x, which waits for them in memory's queues. Of 1, 2, 3 and 5
  // a layer of an 8B shape takes 42.8, 43.4, 47.6 and 48.9 us in Q4_K with one row.
  static constexpr int32_t kEarlyStages = kOneRow ? 1 : 2;

 public:
  __device__ __forceinline__ BlocksGemvBlock(const BlocksGemvArguments<T>& args, std::byte* shared,
                                             BlocksGemvBarriers& barriers)
      : args_(args),
        common_(args.common),
        warp_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpThreads, 0)),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads),
        pair_(lane_ / 4),
        quad_(lane_ % 4),
        stages_of_group_(common_.weight.chunks / Stage::kChunks),
        x_stride_(args.plan.x_stride),
        arrived_(barriers.arrived[warp_]),
        barriers_(barriers),
        beyond_(barriers.beyond),
        ring_(shared + warp_ * args.plan.stages * Stage::kBytes),
        x_(shared + kWarps * args.plan.stages * Stage::kBytes),
        x_sums_(reinterpret_cast<float*>(x_ + common_.m * x_stride_)),
        partial_(x_sums_ + common_.weight.chunks * Stage::kPartsOfChunk *
                               (kOneRow    ? 2
                                : kMinimum ? kRows
                                           : 0)) {
    const auto block = static_cast<int32_t>(blockIdx.x);
    const int32_t dealt = args.gated ? 2 : 1;  // groups at a time
    first_group_ = dealt * (block * args.plan.share + min(block, args.plan.blocks_with_more));
    groups_ = dealt * (args.plan.share + (block < args.plan.blocks_with_more ? 1 : 0));
    begin_round(load_, 0);
    find_source();
  }

  // What needs nothing of earlier kernels, which may still run: nobody writes W or the norm's
  // weights. The warp that asks for x waits for them here, and asks for it before W.
  __device__ __forceinline__ void ask_early() {
    if (elect_one()) {
#pragma unroll 1
      for (int32_t i = 0; i < args_.plan.stages; ++i) arrived_[i].init(1);
      if (asks_for_x()) {
        barriers_.norm.init(1);
        barriers_.x.init(1);
      }
      fence_barrier_init();
      if (asks_for_x()) ask_for_rows();
    }
    __syncwarp();
    if (threadIdx.x < kBlocksGemvRowsMax) beyond_[threadIdx.x] = false;
    ask_stages(0, min(kEarlyStages, args_.plan.stages));
  }

  __device__ __forceinline__ void take_rows() {
    if constexpr (kOneRow) {
      const int32_t row = first_group_ * kBlocksRows + static_cast<int32_t>(threadIdx.x);
      if (common_.accumulates && row < common_.weight.rows) before_ = y_of_row(row);
    }
    ask_stages(kEarlyStages, args_.plan.stages);
    __syncthreads();
    if constexpr (kOneRow) {
      take_row();
    } else {
      if (args_.norm != nullptr) add_squares();
      take_f16_rows();
    }
  }

  __device__ __forceinline__ void multiply() {
    BlocksGemvTurn turn;
    int buffer = 0;
#pragma unroll 1
    for (int32_t first = 0; first < groups_; first += args_.plan.round_groups) {
      begin_round(turn, first);
      const int32_t first_partial = buffer * args_.plan.round_groups;
      clear(first_partial, turn.round_groups);
#pragma unroll 1
      while (turn.left > 0) {
        const int32_t stages = min(turn.left, stages_of_group_ - turn.stage);
        float sums[4] = {};
#pragma unroll 1
        for (int32_t stage = turn.stage; stage < turn.stage + stages; ++stage) {
          if constexpr (kOneRow) {
            RowOperands x;
            take_operands(x, stage);
            arrived_[slot_].wait(phase_);
            add_stage(sums, x, stage);
          } else {
            arrived_[slot_].wait(phase_);
            add_stage(sums, stage);
          }
          __syncwarp();
          ask(slot_);
          if (++slot_ == args_.plan.stages) {
            slot_ = 0;
            phase_ ^= 1;
          }
        }
        add_to_partial(sums, first_partial + turn.group);
        turn.skip(stages);
      }
      __syncthreads();
      finish(first, turn.round_groups, first_partial);
      buffer ^= 1;
    }
  }

 private:
  // One row of x of a stage, as one side of products.
  struct RowOperands {
    uint2 of[Stage::kChunks];
  };
  // What one row's 16-bit numbers of a part are multiplied by, and their sum: for minima of what
  // they stand for, for zero points of themselves.
  struct RowPart {
    float scale;
    std::conditional_t<kMinimum, float, int32_t> sum;
  };
  static_assert(!kMinimum || kFormat<kType>.zero == 0);

  __device__ __forceinline__ void begin_round(BlocksGemvTurn& turn, int32_t first) const {
    const int32_t groups = min(args_.plan.round_groups, groups_ - first);
    turn.begin(first, groups, stages_of_group_, warp_);
  }

  __device__ __forceinline__ bool asks_for_x() const { return warp_ == kWarps - 1; }
  // The norm's weights and one row of x, as they are; by one thread.
  __device__ __forceinline__ void ask_for_rows() {
    const auto columns = static_cast<uint32_t>(common_.weight.chunks) * 32;
    if (args_.norm != nullptr) {
      const auto bytes = columns * static_cast<uint32_t>(sizeof(float));
      barriers_.norm.arrive_expecting(bytes);
      copy_bytes(norm(), args_.norm, bytes, barriers_.norm);
    }
    if constexpr (kOneRow) {
      const auto bytes = columns * static_cast<uint32_t>(sizeof(T));
      barriers_.x.arrive_expecting(bytes);
      wait_for_earlier_kernels();
      copy_bytes(x_, args_.x.data, bytes, barriers_.x);
    }
  }
  __device__ __forceinline__ void ask_stages(int32_t first, int32_t end) {
#pragma unroll 1
    for (int32_t slot = first; slot < end; ++slot) ask(slot);
  }
  // The next stage of this warp, if there is one, to a slot that nobody reads.
  __device__ __forceinline__ void ask(int32_t slot) {
    while (load_.left == 0 && load_.round_first + load_.round_groups < groups_) {
      begin_round(load_, load_.round_first + load_.round_groups);
      find_source();
    }
    if (load_.left == 0) return;
    if (elect_one()) {
      std::byte* const to = ring_ + slot * Stage::kBytes;
      arrived_[slot].arrive_expecting(Stage::kBytes);
      copy_bytes(to, quants_, Stage::kQuantBytes, arrived_[slot]);
      copy_bytes(to + Stage::kQuantBytes, scales_, Stage::kScaleBytes, arrived_[slot]);
    }
    quants_ += Stage::kQuantBytes;
    scales_ += Stage::kScaleBytes;
    load_.skip(1);
    if (load_.stage == 0) find_source();
  }
  // Where the stage to ask for next lies.
  __device__ __forceinline__ void find_source() {
    const PackedGroup group = common_.weight.group(group_of(load_.round_first + load_.group));
    quants_ = group.data + int64_t{load_.stage} * Stage::kQuantBytes;
    scales_ = group.data + group.scales_at + int64_t{load_.stage} * Stage::kScaleBytes;
  }

  __device__ __forceinline__ int32_t group_of(int32_t i) const {
    return blocks_gemv_group(first_group_ + i, common_.groups, args_.gated);
  }

  // The norm's weights, until the first sums are left.
  __device__ __forceinline__ float* norm() const { return partial_; }
  // As rms_norm, of all rows.
  __device__ __forceinline__ void add_squares() {
    const int32_t pieces = common_.weight.chunks * 4;
#pragma unroll 1
    for (int32_t row = 0; row < common_.m; ++row) {
      float squares = 0.0f;
#pragma unroll 1
      for (auto i = static_cast<int32_t>(threadIdx.x); i < pieces; i += kThreads) {
        const auto piece = Vector<T, 8>::load(args_.x.row(row) + 8 * i);
#pragma unroll
        for (const T of : piece.values) {
          const float x = to_float(of);
          squares += x * x;
        }
      }
      squares = warp_sum(squares);
      if (lane_ == 0) barriers_.squares[row][warp_] = squares;
    }
    __syncthreads();
    barriers_.norm.wait(0);
  }
  __device__ __forceinline__ float norm_factor(int32_t row) const {
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += barriers_.squares[row][warp];
    return rsqrtf(sum / static_cast<float>(common_.weight.chunks * 32) + args_.eps);
  }
  static __device__ __forceinline__ void normalise(Vector<T, 4>& x, float factor,
                                                   const float* weights) {
    const auto of = Vector<float, 4>::load(weights);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      x.values[e] = from_float<T>(to_float(x.values[e]) * factor * of.values[e]);
    }
  }

  // Four columns from `column` on and four from 16 further on, normalised.
  struct Columns {
    Vector<T, 4> low, high;
    __device__ __forceinline__ float operator[](int e) const {
      return to_float(e < 4 ? low.values[e] : high.values[e - 4]);
    }
  };
  __device__ __forceinline__ Columns columns(int32_t row, int32_t column) const {
    const T* const from = args_.x.row(row) + column;
    Columns of{Vector<T, 4>::load(from), Vector<T, 4>::load(from + 16)};
    if (args_.norm != nullptr) {
      const float factor = norm_factor(row);
      normalise(of.low, factor, norm() + column);
      normalise(of.high, factor, norm() + column + 16);
    }
    return of;
  }

  // Of what lies in x_ as it was copied, eight columns: those that products have side by side.
  __device__ __forceinline__ Columns columns_of_row(int32_t i) const {
    const T* const from = reinterpret_cast<const T*>(x_) + 32 * (i / 4) + 4 * (i % 4);
    return {Vector<T, 4>::load(from), Vector<T, 4>::load(from + 16)};
  }
  // One row, where it lies: four lanes read 32 columns and write them.
  __device__ __forceinline__ void take_row() {
    const int32_t items = common_.weight.chunks * 4;
    // Whole warps, which shuffle.
    const int32_t end = (items + kWarpThreads - 1) / kWarpThreads * kWarpThreads;
    barriers_.x.wait(0);
    float factor = 1.0f;
    if (args_.norm != nullptr) {
      float squares = 0.0f;
#pragma unroll 1
      for (auto i = static_cast<int32_t>(threadIdx.x); i < items; i += kThreads) {
        const Columns x = columns_of_row(i);
#pragma unroll
        for (int e = 0; e < 8; ++e) squares += x[e] * x[e];
      }
      squares = warp_sum(squares);
      if (lane_ == 0) barriers_.squares[0][warp_] = squares;
      __syncthreads();
      barriers_.norm.wait(0);
      factor = norm_factor(0);
    }
#pragma unroll 1
    for (auto i = static_cast<int32_t>(threadIdx.x); i < end; i += kThreads) {
      const int32_t quad = i % 4, chunk = i / 4;
      Columns x{};
      if (i < items) {
        x = columns_of_row(i);
        if (args_.norm != nullptr) {
          normalise(x.low, factor, norm() + 32 * chunk + 4 * quad);
          normalise(x.high, factor, norm() + 32 * chunk + 4 * quad + 16);
        }
      }
      __syncwarp();
      leave_item(x, chunk, quad, i < items);
    }
    __syncthreads();
  }
  // Rounded, of magnitudes below 2^22, without the unit that converts: a fraction's last bit is 1.
  static __device__ __forceinline__ int32_t to_integer(float x) {
    constexpr float kOnes = 0x1.8p23f;
    return __float_as_int(x + kOnes) - __float_as_int(kOnes);
  }
  // Quad c has the high bytes of columns 4c to 4c + 3 and 16 + 4c to 16 + 4c + 3 of 32, then their
  // low bytes. A part's largest magnitude becomes 127 * 256. By whole warps, which shuffle.
  __device__ __forceinline__ void leave_item(const Columns& x, int32_t chunk, int32_t quad,
                                             bool there) const {
    constexpr float kLargest = 127.0f * 256.0f;
    constexpr float kLeast = 0x1p-100f;  // of smaller numbers nothing is left
    float most[2] = {};
#pragma unroll
    for (int e = 0; e < 8; ++e) most[e / 4] = max_or_nan(most[e / 4], fabsf(x[e]));
    if constexpr (Stage::kPartsOfChunk == 1) most[0] = most[1] = max_or_nan(most[0], most[1]);
    int32_t numbers[8], sums[2] = {};
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = max_or_nan(most[half], __shfl_xor_sync(0xffffffffu, most[half], 1));
      most[half] = max_or_nan(most[half], __shfl_xor_sync(0xffffffffu, most[half], 2));
      factors[half] = most[half] >= kLeast ? kLargest / most[half] : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      numbers[e] = to_integer(x[e] * factors[e / 4]);
      sums[e / 4] += numbers[e];
    }
#pragma unroll
    for (int32_t& sum : sums) {
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    }
    if (!there) return;
    // Byte `byte` of four numbers.
    const auto bytes = [&](int half, int byte, int32_t more) {
      uint32_t of[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) of[e] = static_cast<uint32_t>(numbers[4 * half + e] + more);
      const uint32_t pair = byte == 0 ? 0x0040 : 0x0051;
      return __byte_perm(__byte_perm(of[0], of[1], pair), __byte_perm(of[2], of[3], pair), 0x5410);
    };
    // Low bytes are signed: -128 to 127.
    *reinterpret_cast<uint4*>(x_ + chunk * 64 + quad * 16) = {bytes(0, 1, 128), bytes(1, 1, 128),
                                                              bytes(0, 0, 0), bytes(1, 0, 0)};
    if (quad != 0) return;
    const auto part = [&](int half, int32_t sum) {
      const float scale = most[half] / kLargest;
      if constexpr (kMinimum) {
        return RowPart{scale, scale * static_cast<float>(sum)};
      } else {
        return RowPart{scale, sum};
      }
    };
    RowPart* const to = row_parts() + chunk * Stage::kPartsOfChunk;
    if constexpr (Stage::kPartsOfChunk == 1) {
      to[0] = part(0, sums[0] + sums[1]);
    } else {
      to[0] = part(0, sums[0]);
      to[1] = part(1, sums[1]);
    }
  }
  __device__ __forceinline__ RowPart* row_parts() const {
    return reinterpret_cast<RowPart*>(x_sums_);
  }

  // Several rows as F16: of 32 columns quad c has columns 4c to 4c + 3 and 16 + 4c to 16 + 4c + 3
  // side by side; and the sums of parts, [part][kRows].
  __device__ __forceinline__ void take_f16_rows() {
    take_f16_rows<false>(0, common_.m);
    __syncthreads();
    if constexpr (std::is_same_v<T, __half>) return;
    bool again = false;
    for (int32_t row = 0; row < common_.m; ++row) {
      if (!beyond_[row]) continue;
      take_f16_rows<true>(row, row + 1);
      again = true;
    }
    if (again) __syncthreads();
  }
  template <bool kSmaller>
  __device__ __forceinline__ void take_f16_rows(int32_t first_row, int32_t last_row) {
    const int32_t chunks = common_.weight.chunks, items = (last_row - first_row) * chunks * 4;
#pragma unroll 1
    for (auto i = static_cast<int32_t>(threadIdx.x); i < items; i += kThreads) {
      const int32_t quad = i % 4, chunk = i / 4 % chunks, row = first_row + i / 4 / chunks;
      const Columns of = columns(row, 32 * chunk + 4 * quad);
      Vector<__half, 8> operands;
      float sums[2] = {};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const float x = of[e];
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

  // One row: of a round of parts the one that is this lane's, and zeros elsewhere.
  __device__ __forceinline__ void take_operands(RowOperands& x, int32_t stage) const {
    const int own = pair_ / 2, byte = pair_ % 2;  // part of a round; high, low
#pragma unroll
    for (int first = 0; first < Stage::kChunks; first += kRoundChunks) {
      const int32_t chunk = stage * Stage::kChunks + first + own / Stage::kPartsOfChunk;
      const auto words = *reinterpret_cast<const uint2*>(x_ + chunk * 64 + quad_ * 16 + byte * 8);
#pragma unroll
      for (int j = 0; j < kRoundChunks; ++j) {
        const int part = j * Stage::kPartsOfChunk;
        const bool low = own == part, high = own == part + Stage::kPartsOfChunk - 1;
        x.of[first + j] = {low ? words.x : 0u, high ? words.y : 0u};
      }
    }
  }

  // sums[0], sums[1] += one row of x times a stage's columns of this lane's two rows of W, of the
  // parts that are this lane's.
  __device__ __forceinline__ void add_stage(float (&sums)[4], const RowOperands& x,
                                            int32_t index) const {
    constexpr int kRounds = Stage::kParts / kRoundParts;
    const StageReader<kType> stage{ring_ + slot_ * Stage::kBytes, pair_, quad_};
    const RowPart* const x_parts = row_parts() + index * Stage::kParts + quad_;
    float factors[kRounds][2];
    int32_t zeros[kRounds];
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const RowPart of_x = x_parts[round * kRoundParts];
      PartScale scales[2];
      stage.scales_of_round(scales, round);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        factors[round][row] = scales[row].scale * of_x.scale;
        if constexpr (kMinimum) sums[row] = fmaf(scales[row].minimum, of_x.sum, sums[row]);
      }
      zeros[round] = kMinimum ? 0 : kFormat<kType>.zero * static_cast<int32_t>(of_x.sum);
    }
    int32_t products[kRounds][4] = {};
#pragma unroll
    for (int j = 0; j < Stage::kChunks; ++j) {
      QuadDwords<kType> quads[2];
      stage.quads(quads, j);
      const uint32_t a[4] = {
          stored_quants<kType, 0>(quads[0], quad_), stored_quants<kType, 0>(quads[1], quad_),
          stored_quants<kType, 1>(quads[0], quad_), stored_quants<kType, 1>(quads[1], quad_)};
      multiply_add_bytes(products[j / kRoundChunks], a, x.of[j].x, x.of[j].y);
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int32_t high = products[round][2 * row], low = products[round][2 * row + 1];
        sums[row] = fmaf(factors[round][row], static_cast<float>(256 * high + low - zeros[round]),
                         sums[row]);
      }
    }
  }

  // sums += rows of x times a stage's columns of 16 rows of W.
  __device__ __forceinline__ void add_stage(float (&sums)[4], int32_t index) const {
    const StageReader<kType> stage{ring_ + slot_ * Stage::kBytes, pair_, quad_};
    const int32_t first_chunk = index * Stage::kChunks;
    const float* const x_sums = x_sums_ + first_chunk * Stage::kPartsOfChunk * kRows;
    PartScale own[Stage::kPartsOfLane][2];
#pragma unroll
    for (int i = 0; i < Stage::kPartsOfLane; ++i) {
      stage.scales(own[i], quad_ * Stage::kPartsOfLane + i);
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
    float2 of_x{};
    if constexpr (kMinimum) {
      of_x = load_two(shared_address(x_sums + part * kRows + 2 * quad_));
    }
    add_part<kMinimum>(sums, share_scales<Stage::kPartsOfLane, kMinimum>(own, part), products,
                       of_x);
  }

  // [group of two rounds][warp][16 rows][m]
  __device__ __forceinline__ float* partial(int32_t group, int warp) const {
    return partial_ + (group * kWarps + warp) * kBlocksRows * common_.m;
  }
  // Of this warp, which alone adds to them.
  __device__ __forceinline__ void clear(int32_t first, int32_t count) const {
    const int32_t numbers = kBlocksRows * common_.m;
#pragma unroll 1
    for (int32_t group = first; group < first + count; ++group) {
      for (int32_t i = lane_; i < numbers; i += kWarpThreads) partial(group, warp_)[i] = 0.0f;
    }
    __syncwarp();
  }
  // What `sums` have of a group.
  __device__ __forceinline__ void add_to_partial(const float (&sums)[4], int32_t group) const {
    float* const to = partial(group, warp_);
    if constexpr (kOneRow) {
      // Of four lanes the even ones take the first row, the others the second.
      const bool second = quad_ % 2 == 1;
      float sum = second ? sums[1] : sums[0];
      sum += __shfl_xor_sync(0xffffffffu, second ? sums[0] : sums[1], 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (quad_ < 2) to[2 * pair_ + quad_] += sum;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 2 * quad_ + i % 2;
        if (column < common_.m) to[(2 * pair_ + i / 2) * common_.m + column] += sums[i];
      }
    }
  }
  __device__ __forceinline__ float y_of_row(int32_t row) const {
    return common_.y.f32 ? reinterpret_cast<const float*>(common_.y.data)[row]
                         : to_float(reinterpret_cast<const T*>(common_.y.data)[row]);
  }
  // A round's sums of all warps, of row `row` of its group `group` and a column of y.
  __device__ __forceinline__ float sum_of(int32_t group, int32_t row, int32_t column) const {
    const float* const from = partial(group, 0) + row * common_.m + column;
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += from[warp * kBlocksRows * common_.m];
    return !std::is_same_v<T, __half> && beyond_[column] ? sum * kF16Larger : sum;
  }
  __device__ __forceinline__ void finish(int32_t first, int32_t count,
                                         int32_t first_partial) const {
    if (args_.gated) return finish_gated(first, count, first_partial);
    const int32_t rows = count * kBlocksRows;
    const int32_t first_row = (first_group_ + first) * kBlocksRows;
#pragma unroll 1
    for (auto i = static_cast<int32_t>(threadIdx.x); i < rows * common_.m; i += kThreads) {
      const int32_t column = i / rows, of_round = i % rows, row = first_row + of_round;
      if (row >= common_.weight.rows) continue;
      float sum = sum_of(first_partial + of_round / kBlocksRows, of_round % kBlocksRows, column);
      if (common_.bias != nullptr) sum += common_.bias[row];
      const bool early = kOneRow && first == 0 && i < kThreads;
      if (early) sum += before_;
      common_.y.finish(column, row, sum, common_.accumulates && !early);
    }
  }
  __device__ __forceinline__ void finish_gated(int32_t first, int32_t count,
                                               int32_t first_partial) const {
    const int32_t rows = count / 2 * kBlocksRows, of_up = common_.weight.rows / 2;
    const int32_t first_row = (first_group_ + first) / 2 * kBlocksRows;
#pragma unroll 1
    for (auto i = static_cast<int32_t>(threadIdx.x); i < rows * common_.m; i += kThreads) {
      const int32_t column = i / rows, of_round = i % rows, row = first_row + of_round;
      const int32_t pair = first_partial + of_round / kBlocksRows * 2;
      float gate = sum_of(pair, of_round % kBlocksRows, column);
      float up = sum_of(pair + 1, of_round % kBlocksRows, column);
      if (common_.bias != nullptr) {
        gate += common_.bias[row];
        up += common_.bias[of_up + row];
      }
      common_.y.finish(column, row, activated(args_.activation, gate) * up, false);
    }
  }

  const BlocksGemvArguments<T>& args_;
  const BlocksArguments<T>& common_;
  const int warp_, lane_, pair_, quad_;
  const int32_t stages_of_group_, x_stride_;
  Barrier* const arrived_;
  BlocksGemvBarriers& barriers_;
  bool* const beyond_;
  std::byte* const ring_;  // of this warp
  std::byte* const x_;
  float* const x_sums_;
  float* const partial_;
  int32_t first_group_, groups_;
  BlocksGemvTurn load_;                // the stage to ask for next
  const std::byte *quants_, *scales_;  // of it
  float before_ = 0.0f;                // of y, what is added to
  int32_t slot_ = 0;
  uint32_t phase_ = 0;
};

template <class T, int kType, int kRows>
__global__ void __launch_bounds__(kBlocksGemvWarps* kWarpThreads, 1)
    blocks_gemv(const __grid_constant__ BlocksGemvArguments<T> args) {
  extern __shared__ __align__(128) std::byte dynamic[];
  auto& barriers = *reinterpret_cast<BlocksGemvBarriers*>(dynamic);
  let_next_kernel_start();
  BlocksGemvBlock<T, kType, kRows> block(args, dynamic + kBlocksGemvBarrierBytes, barriers);
  block.ask_early();
  wait_for_earlier_kernels();  // in every thread that reads or overwrites what they wrote
  block.take_rows();
  block.multiply();
}

}  // namespace headrace::gpu
