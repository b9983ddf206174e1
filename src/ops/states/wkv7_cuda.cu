// wkv7 on CUDA: a block has a head of one sequence and its state in registers, from the first of
// its rows to the last. A thread has a column of the state, and of its numbers those of one of four
// lanes, which add up what they read. Rows are staged in shared memory some at a time, each by a
// warp that makes of it what the state is changed by, and that ends the same row when the state has
// been read by all that are staged. The next rows are on their way meanwhile.
//   r, k, v, g, v_first, v_gate, out [T, C] f32, f16 or bf16; w, a f32; all arithmetic in f32
#include <algorithm>
#include <array>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/states/wkv7.h"

namespace headrace {
namespace {

using gpu::kWarpThreads;

constexpr int kLanesOfColumn = 4, kColumnsOfWarp = kWarpThreads / kLanesOfColumn;
constexpr int kStagedRowsMax = 8;
constexpr int kHeadDimMax = 128;  // its numbers are the registers of a block

template <class T>
struct WkvArguments {
  int32_t dim;  // of a head
  gpu::RowsOf<const T> r, k, v, g;
  gpu::RowsOf<const T> v_first, v_gate;  // no data in the first layer
  gpu::RowsOf<const float> w, a;
  const float *w0, *a0, *v0, *k_k, *k_a, *r_k, *norm, *norm_bias;  // [C]
  float norm_eps;
  std::byte* states;     // of entry 0
  int64_t state_stride;  // bytes
  DeviceStates sequences;
  gpu::RowsOf<T> out;
};

// The sizes of blocks for heads of up to kDim, a multiple of a warp's threads.
template <int kDim>
struct WkvShape {
  static constexpr int kThreads = kDim * kLanesOfColumn;
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr int kStagedRows = std::min(kStagedRowsMax, kWarps);  // a warp each
  static constexpr int kNumbers = kDim / kLanesOfColumn;                // of a thread
  static constexpr int kEach = kDim / kWarpThreads;                     // of a row, of a lane
};

template <int kDim>
struct StagedWkvRows {
  static constexpr int kRows = WkvShape<kDim>::kStagedRows;
  // As wkv7.h names them: w, k, kk, kk a, r; of numbers that a head has not, zero.
  float decay[kRows][kDim], key[kRows][kDim], removal[kRows][kDim], back[kRows][kDim];
  float query[kRows][kDim], value[kRows][kDim], gate[kRows][kDim];
  float y[kRows][kDim];
};

// What a lane has of one row, as it comes out of the products.
template <int kEach>
struct WkvRow {
  float r[kEach], w[kEach], k[kEach], v[kEach], a[kEach], g[kEach];
  float v_first[kEach], v_gate[kEach];
};

__device__ __forceinline__ float wkv_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Where a thread's numbers of a column stand among those of the head: runs of four, so that the
// four lanes of a column read 64 bytes side by side.
__device__ __forceinline__ constexpr int number_at(int lane_of_column, int j) {
  return j / 4 * 16 + lane_of_column * 4 + j % 4;
}

template <class T, int kDim>
class WkvHead {
  using Shape = WkvShape<kDim>;
  using Row = WkvRow<Shape::kEach>;

 public:
  using Staged = StagedWkvRows<kDim>;

  __device__ WkvHead(const WkvArguments<T>& args, Staged& staged)
      : args_(args),
        staged_(staged),
        head_(static_cast<int32_t>(blockIdx.x)),
        warp_(static_cast<int>(threadIdx.x) / kWarpThreads),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads),
        part_(lane_ / kColumnsOfWarp),
        column_(warp_ * kColumnsOfWarp + lane_ % kColumnsOfWarp) {}

  __device__ void run(const DeviceStateSequence& sequence) {
    load(sequence, warp_);
#pragma unroll
    for (int j = 0; j < Shape::kNumbers; ++j) numbers_[j] = 0.0f;
    if (sequence.position > 0) move_state<false>(sequence.entry);
    int32_t saved = 0;
    for (int32_t first = 0; first < sequence.row_count; first += Shape::kStagedRows) {
      const int32_t count = min(Shape::kStagedRows, sequence.row_count - first);
      if (warp_ < count) stage();
      __syncthreads();
      load(sequence, first + Shape::kStagedRows + warp_);
      for (int32_t r = 0; r < count; ++r) {
        advance(r);
        const int32_t tokens = sequence.position + first + r + 1;
        while (saved < sequence.save_count &&
               args_.sequences.saves[sequence.save_first + saved].tokens == tokens) {
          move_state<true>(args_.sequences.saves[sequence.save_first + saved].entry);
          ++saved;
        }
      }
      __syncthreads();  // all of y is there, and staged rows have been read
      if (warp_ < count) end_row(sequence.row_first + first + warp_);
    }
    move_state<true>(sequence.entry);
  }

 private:
  // From or to the memory of an entry: blocks of kWkv7Columns, [keys, width] dense.
  template <bool kStore>
  __device__ __forceinline__ void move_state(int32_t entry) {
    constexpr int kBlock = static_cast<int>(kWkv7Columns);
    const int dim = args_.dim;
    if (column_ >= dim) return;
    const int block = column_ / kBlock * kBlock;
    const int width = min(kBlock, dim - block);
    float* at = reinterpret_cast<float*>(args_.states + entry * args_.state_stride) +
                (int64_t{head_} * dim + block) * dim + part_ * 4 * width + (column_ - block);
#pragma unroll
    for (int j = 0; j < Shape::kNumbers; j += 4, at += 16 * width) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (number_at(part_, j + n) >= dim) continue;
        if constexpr (kStore) {
          at[n * width] = numbers_[j + n];
        } else {
          numbers_[j + n] = at[n * width];
        }
      }
    }
  }

  __device__ __forceinline__ int64_t channel(int i) const { return int64_t{head_} * args_.dim + i; }

  // Row `r` of the sequence's into the registers of the warp that has it, where there is one.
  __device__ __forceinline__ void load(const DeviceStateSequence& sequence, int32_t r) {
    if (warp_ >= Shape::kStagedRows || r >= sequence.row_count) return;
    const int64_t row = sequence.row_first + r;
    const bool mixed = args_.v_first.data != nullptr;
#pragma unroll
    for (int n = 0; n < Shape::kEach; ++n) {
      const int i = n * kWarpThreads + lane_;
      const bool there = i < args_.dim;
      const int64_t at = channel(i);
      const auto of = [&](const auto& rows) {
        return there ? gpu::to_float(rows.row(row)[at]) : 0.0f;
      };
      next_.r[n] = of(args_.r);
      next_.w[n] = of(args_.w);
      next_.k[n] = of(args_.k);
      next_.v[n] = of(args_.v);
      next_.a[n] = of(args_.a);
      next_.g[n] = of(args_.g);
      next_.v_first[n] = mixed ? of(args_.v_first) : 0.0f;
      next_.v_gate[n] = mixed ? of(args_.v_gate) : 0.0f;
    }
  }

  // By a warp: what its row changes the state by; the row's bonus stays in a register.
  __device__ __forceinline__ void stage() {
    float removal[Shape::kEach], rate[Shape::kEach];
    float squares = 0.0f, bonus = 0.0f;
#pragma unroll
    for (int n = 0; n < Shape::kEach; ++n) {
      const int i = n * kWarpThreads + lane_;
      const bool there = i < args_.dim;
      const int64_t at = channel(i);
      const auto of = [&](const float* values) { return there ? values[at] : 0.0f; };
      const float decay = expf(-0.60653066f * wkv_sigmoid(of(args_.w0) + next_.w[n]));  // exp(-1/2)
      rate[n] = wkv_sigmoid(of(args_.a0) + next_.a[n]);
      removal[n] = next_.k[n] * of(args_.k_k);
      squares = fmaf(removal[n], removal[n], squares);
      const float key = next_.k[n] * fmaf(rate[n] - 1.0f, of(args_.k_a), 1.0f);
      bonus = fmaf(next_.r[n] * key, of(args_.r_k), bonus);
      float value = next_.v[n];
      if (args_.v_first.data != nullptr) {
        value = fmaf(next_.v_first[n] - value, wkv_sigmoid(of(args_.v0) + next_.v_gate[n]), value);
      }
      staged_.decay[warp_][i] = there ? decay : 0.0f;
      staged_.key[warp_][i] = key;
      staged_.query[warp_][i] = next_.r[n];
      staged_.value[warp_][i] = value;
      staged_.gate[warp_][i] = next_.g[n];
    }
    bonus_ = gpu::warp_sum(bonus);
    const float scale = 1.0f / fmaxf(sqrtf(gpu::warp_sum(squares)), 1e-12f);
#pragma unroll
    for (int n = 0; n < Shape::kEach; ++n) {
      const int i = n * kWarpThreads + lane_;
      const float unit = removal[n] * scale;
      staged_.removal[warp_][i] = unit;
      staged_.back[warp_][i] = unit * rate[n];
    }
  }

  // What the four lanes of a column have, in all of them.
  __device__ __forceinline__ static float column_sum(const float4& parts) {
    float value = (parts.x + parts.y) + (parts.z + parts.w);
#pragma unroll
    for (int distance = kColumnsOfWarp; distance < kWarpThreads; distance *= 2) {
      value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
  }

  __device__ __forceinline__ static float changed(float number, float decay, float back,
                                                  float removed, float key, float value) {
    return fmaf(key, value, fmaf(back, removed, decay * number));
  }

  __device__ __forceinline__ void advance(int32_t r) {
    const auto four = [&](const float* numbers, int j) {
      return *reinterpret_cast<const float4*>(numbers + number_at(part_, j));
    };
    float4 of_kk = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < Shape::kNumbers; j += 4) {
      const float4 kk = four(staged_.removal[r], j);
      of_kk.x = fmaf(kk.x, numbers_[j], of_kk.x);
      of_kk.y = fmaf(kk.y, numbers_[j + 1], of_kk.y);
      of_kk.z = fmaf(kk.z, numbers_[j + 2], of_kk.z);
      of_kk.w = fmaf(kk.w, numbers_[j + 3], of_kk.w);
    }
    const float removed = -column_sum(of_kk);
    const float value = staged_.value[r][column_];
    float4 y = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < Shape::kNumbers; j += 4) {
      const float4 decay = four(staged_.decay[r], j), back = four(staged_.back[r], j);
      const float4 key = four(staged_.key[r], j), query = four(staged_.query[r], j);
      numbers_[j] = changed(numbers_[j], decay.x, back.x, removed, key.x, value);
      numbers_[j + 1] = changed(numbers_[j + 1], decay.y, back.y, removed, key.y, value);
      numbers_[j + 2] = changed(numbers_[j + 2], decay.z, back.z, removed, key.z, value);
      numbers_[j + 3] = changed(numbers_[j + 3], decay.w, back.w, removed, key.w, value);
      y.x = fmaf(query.x, numbers_[j], y.x);
      y.y = fmaf(query.y, numbers_[j + 1], y.y);
      y.z = fmaf(query.z, numbers_[j + 2], y.z);
      y.w = fmaf(query.w, numbers_[j + 3], y.w);
    }
    const float read = column_sum(y);
    if (part_ == 0) staged_.y[r][column_] = read;
  }

  // By the warp that staged the row: out := (norm(y) + bonus v) g.
  __device__ __forceinline__ void end_row(int64_t row) {
    const auto count = static_cast<float>(args_.dim);
    float y[Shape::kEach];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int n = 0; n < Shape::kEach; ++n) {
      const int i = n * kWarpThreads + lane_;
      y[n] = i < args_.dim ? staged_.y[warp_][i] : 0.0f;
      sum += y[n];
    }
    const float mean = gpu::warp_sum(sum) / count;
#pragma unroll
    for (int n = 0; n < Shape::kEach; ++n) {
      const float distance = n * kWarpThreads + lane_ < args_.dim ? y[n] - mean : 0.0f;
      squares = fmaf(distance, distance, squares);
    }
    const float scale = 1.0f / sqrtf(gpu::warp_sum(squares) / count + args_.norm_eps);
    T* const out = args_.out.row(row);
#pragma unroll
    for (int n = 0; n < Shape::kEach; ++n) {
      const int i = n * kWarpThreads + lane_;
      if (i >= args_.dim) continue;
      const int64_t at = channel(i);
      const float normed = fmaf((y[n] - mean) * scale, args_.norm[at], args_.norm_bias[at]);
      out[at] = gpu::from_float<T>(fmaf(bonus_, staged_.value[warp_][i], normed) *
                                   staged_.gate[warp_][i]);
    }
  }

  const WkvArguments<T>& args_;
  Staged& staged_;
  const int32_t head_;
  const int warp_, lane_, part_, column_;
  Row next_;  // of the rows that are staged next, the warp's
  float bonus_ = 0.0f;
  float numbers_[Shape::kNumbers];
};

// blockIdx: head, sequence.
template <class T, int kDim>
__global__ void __launch_bounds__(WkvShape<kDim>::kThreads, kDim <= 64 ? 3 : 1)
    advance_wkv_heads(const __grid_constant__ WkvArguments<T> args) {
  using Head = WkvHead<T, kDim>;
  __shared__ __align__(16) typename Head::Staged staged;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  Head(args, staged).run(args.sequences.sequences[blockIdx.y]);
}

template <int kDim, class T>
void launch_heads(OpContext& context, int32_t heads, const WkvArguments<T>& arguments) {
  gpu::launch(context, advance_wkv_heads<T, kDim>,
              dim3(static_cast<unsigned>(heads), static_cast<unsigned>(arguments.sequences.count)),
              WkvShape<kDim>::kThreads, arguments);
}

void run(OpContext& context, const Wkv7Args& args) {
  gpu::with_float_type(args.out.dtype, [&]<class T>(gpu::ElementType<T>) {
    const WkvArguments<T> arguments{.dim = args.heads.head_dim,
                                    .r = gpu::rows_of<T>(args.r),
                                    .k = gpu::rows_of<T>(args.k),
                                    .v = gpu::rows_of<T>(args.v),
                                    .g = gpu::rows_of<T>(args.g),
                                    .v_first = gpu::rows_of<T>(args.v_first),
                                    .v_gate = gpu::rows_of<T>(args.v_gate),
                                    .w = gpu::rows_of<float>(args.w),
                                    .a = gpu::rows_of<float>(args.a),
                                    .w0 = args.w0,
                                    .a0 = args.a0,
                                    .v0 = args.v0,
                                    .k_k = args.k_k,
                                    .k_a = args.k_a,
                                    .r_k = args.r_k,
                                    .norm = args.norm,
                                    .norm_bias = args.norm_bias,
                                    .norm_eps = args.norm_eps,
                                    .states = args.states.base,
                                    .state_stride = args.states.stride,
                                    .sequences = args.states.on_device,
                                    .out = gpu::rows_of<T>(args.out)};
    const int32_t heads = args.heads.heads;
    if (arguments.dim <= 32) return launch_heads<32>(context, heads, arguments);
    if (arguments.dim <= 64) return launch_heads<64>(context, heads, arguments);
    launch_heads<kHeadDimMax>(context, heads, arguments);
  });
}

bool heads_fit(const DeviceTraits& traits, const Wkv7Args& args) {
  return traits.kind == DeviceKind::kCuda && args.heads.head_dim <= kHeadDimMax;
}

constexpr std::array kKernels = {Kernel<Wkv7Args>{"wkv7/cuda/heads", heads_fit, run}};

}  // namespace

KernelTable<Wkv7Args> wkv7_cuda_kernels() { return kKernels; }

}  // namespace headrace
