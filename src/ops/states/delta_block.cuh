// What both forms of the gated delta rule (delta_rule.h, kimi_delta.h) share on CUDA. A block has
// 32 columns of a value head's state of one sequence, in registers from the first of its rows to
// the last: a thread has a column, and of its dk numbers those of one of four lanes, which add up
// what they read. Rows are staged in shared memory some at a time, normalised there. A second
// kernel norms and gates what was read, a warp a row and head.
//   qkv, z, out [T, ...] f32, f16 or bf16; what gates are made of f32; all arithmetic in f32
//
// What a state forgets by is the form's, its Gates: plain data with
//   kOfComponents                a decay of each component of a key, or one of the head
//   beta(row, head)              what is learnt of a row
//   decay(row, head, component)  in [0, 1]; of a head it is asked for component 0 alone
#pragma once

#include <algorithm>
#include <array>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/states/delta_rule.h"

namespace headrace::gpu {

inline constexpr int kDeltaWarps = 4;
inline constexpr int kDeltaThreads = kDeltaWarps * kWarpThreads;
inline constexpr int kDeltaBlockColumns = static_cast<int>(kDeltaColumns);
inline constexpr int kLanesOfColumn = 4, kColumnsOfWarp = kWarpThreads / kLanesOfColumn;
static_assert(kDeltaWarps * kColumnsOfWarp == kDeltaBlockColumns);
inline constexpr int kDeltaStagedRows = 8;
inline constexpr int kDeltaKeyDimMax = 256;

// exp(rate softplus(x))
__device__ __forceinline__ float delta_decay(float rate, float x) {
  const float softplus = x > 20.0f ? x : log1pf(expf(x));
  return expf(rate * softplus);
}
__device__ __forceinline__ float delta_beta(float x) { return 1.0f / (1.0f + expf(-x)); }

template <class T, class Gates>
struct DeltaArguments {
  DeltaHeads heads;
  int64_t keys;  // numbers of the keys of a row
  RowsOf<const T> qkv;
  Gates gates;
  std::byte* states;  // of entry 0
  int64_t state_stride;
  DeviceStates sequences;
  RowsOf<T> out;

  // Of a block's columns.
  __device__ float* state(int32_t entry, int32_t head, int32_t column) const {
    return reinterpret_cast<float*>(states + entry * state_stride) +
           (int64_t{head} * heads.value_dim + column) * heads.key_dim;
  }
};

template <int kKeyDim, bool kOfComponents>
struct StagedDeltaRows {
  float q[kDeltaStagedRows][kKeyDim], k[kDeltaStagedRows][kKeyDim];
  float decay[kDeltaStagedRows][kOfComponents ? kKeyDim : 1];
  float v[kDeltaStagedRows][kDeltaBlockColumns];
  float beta[kDeltaStagedRows], k_dot_q[kDeltaStagedRows];
};

// Where a thread's numbers of a column stand among dk: runs of four, so that the four lanes of a
// column read 64 bytes of a key side by side.
__device__ __forceinline__ constexpr int delta_number_at(int lane_of_column, int j) {
  return j / 4 * 16 + lane_of_column * 4 + j % 4;
}

template <class T, class Gates, int kKeyDim>
class DeltaBlock {
  static constexpr int kNumbers = kKeyDim / kLanesOfColumn;  // of a thread
  using Arguments = DeltaArguments<T, Gates>;

 public:
  using Staged = StagedDeltaRows<kKeyDim, Gates::kOfComponents>;

  __device__ DeltaBlock(const Arguments& args, Staged& staged)
      : args_(args),
        staged_(staged),
        head_(static_cast<int32_t>(blockIdx.y)),
        first_column_(static_cast<int32_t>(blockIdx.x) * kDeltaBlockColumns),
        width_(min(kDeltaBlockColumns, args.heads.value_dim - first_column_)),
        warp_(static_cast<int>(threadIdx.x) / kWarpThreads),
        lane_(static_cast<int>(threadIdx.x) % kWarpThreads),
        part_(lane_ / kColumnsOfWarp),
        column_(warp_ * kColumnsOfWarp + lane_ % kColumnsOfWarp) {}

  __device__ void run(const DeviceStateSequence& sequence) {
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) numbers_[j] = 0.0f;
    if (sequence.position > 0) move_state<false>(sequence.entry);
    int32_t saved = 0;
    for (int32_t first = 0; first < sequence.row_count; first += kDeltaStagedRows) {
      const int32_t count = min(kDeltaStagedRows, sequence.row_count - first);
      __syncthreads();  // the rows before have been read
      for (int32_t r = warp_; r < count; r += kDeltaWarps) stage(sequence.row_first + first + r, r);
      __syncthreads();
      for (int32_t r = 0; r < count; ++r) {
        advance(sequence.row_first + first + r, r);
        const int32_t tokens = sequence.position + first + r + 1;
        while (saved < sequence.save_count &&
               args_.sequences.saves[sequence.save_first + saved].tokens == tokens) {
          move_state<true>(args_.sequences.saves[sequence.save_first + saved].entry);
          ++saved;
        }
      }
    }
    move_state<true>(sequence.entry);
  }

 private:
  // From or to the memory of an entry, [dk, width] dense.
  template <bool kStore>
  __device__ __forceinline__ void move_state(int32_t entry) {
    if (column_ >= width_) return;
    float* at = args_.state(entry, head_, first_column_) + part_ * 4 * width_ + column_;
#pragma unroll
    for (int j = 0; j < kNumbers; j += 4, at += 16 * width_) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const bool there = delta_number_at(part_, j + n) < args_.heads.key_dim;
        if constexpr (kStore) {
          if (there) at[n * width_] = numbers_[j + n];
        } else {
          numbers_[j + n] = there ? at[n * width_] : 0.0f;
        }
      }
    }
  }

  // By a warp: q and k of one row as they are used, its values and gates.
  __device__ void stage(int32_t row, int32_t to) {
    const DeltaHeads& heads = args_.heads;
    const int32_t key_head =
        heads.tiled ? head_ % heads.key_heads : head_ / (heads.value_heads / heads.key_heads);
    const T* const qkv = args_.qkv.row(row);
    const T* const q = qkv + int64_t{key_head} * heads.key_dim;
    const T* const k = q + args_.keys;
    constexpr int kEach = kKeyDim / kWarpThreads;
    float queries[kEach], keys[kEach];
    float q_squares = 0.0f, k_squares = 0.0f;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int i = n * kWarpThreads + lane_;
      queries[n] = i < heads.key_dim ? to_float(q[i]) : 0.0f;
      keys[n] = i < heads.key_dim ? to_float(k[i]) : 0.0f;
      q_squares = fmaf(queries[n], queries[n], q_squares);
      k_squares = fmaf(keys[n], keys[n], k_squares);
    }
    q_squares = warp_sum(q_squares);
    k_squares = warp_sum(k_squares);
    const float q_scale =
        1.0f / (sqrtf(q_squares + 1e-6f) * sqrtf(static_cast<float>(heads.key_dim)));
    const float k_scale = 1.0f / sqrtf(k_squares + 1e-6f);
    float dot = 0.0f;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int i = n * kWarpThreads + lane_;
      queries[n] *= q_scale;
      keys[n] *= k_scale;
      dot = fmaf(queries[n], keys[n], dot);
      staged_.q[to][i] = queries[n];
      staged_.k[to][i] = keys[n];
    }
    dot = warp_sum(dot);
    const T* const v = qkv + 2 * args_.keys + int64_t{head_} * heads.value_dim + first_column_;
    staged_.v[to][lane_] = lane_ < width_ ? to_float(v[lane_]) : 0.0f;
    if constexpr (Gates::kOfComponents) {
#pragma unroll
      for (int i = lane_; i < kKeyDim; i += kWarpThreads) {
        staged_.decay[to][i] = i < heads.key_dim ? args_.gates.decay(row, head_, i) : 0.0f;
      }
    }
    if (lane_ == 0) {
      if constexpr (!Gates::kOfComponents) {
        staged_.decay[to][0] = args_.gates.decay(row, head_, 0);
      }
      staged_.beta[to] = args_.gates.beta(row, head_);
      staged_.k_dot_q[to] = dot;
    }
  }

  // The state is forgotten by what each component says.
  __device__ __forceinline__ void forget(const float* decays) {
#pragma unroll
    for (int j = 0; j < kNumbers; j += 4) {
      const auto decay = *reinterpret_cast<const float4*>(decays + delta_number_at(part_, j));
      numbers_[j] *= decay.x;
      numbers_[j + 1] *= decay.y;
      numbers_[j + 2] *= decay.z;
      numbers_[j + 3] *= decay.w;
    }
  }

  // What the four lanes of a column have, in all of them.
  __device__ __forceinline__ static float column_sum(float value) {
#pragma unroll
    for (int distance = kColumnsOfWarp; distance < kWarpThreads; distance *= 2) {
      value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
  }

  __device__ __forceinline__ void advance(int32_t row, int32_t r) {
    const float* const q = staged_.q[r];
    const float* const k = staged_.k[r];
    if constexpr (Gates::kOfComponents) forget(staged_.decay[r]);
    float of_k = 0.0f, of_q = 0.0f;
#pragma unroll
    for (int j = 0; j < kNumbers; j += 4) {
      const auto key = *reinterpret_cast<const float4*>(k + delta_number_at(part_, j));
      const auto query = *reinterpret_cast<const float4*>(q + delta_number_at(part_, j));
      of_k = fmaf(key.x, numbers_[j], of_k);
      of_q = fmaf(query.x, numbers_[j], of_q);
      of_k = fmaf(key.y, numbers_[j + 1], of_k);
      of_q = fmaf(query.y, numbers_[j + 1], of_q);
      of_k = fmaf(key.z, numbers_[j + 2], of_k);
      of_q = fmaf(query.z, numbers_[j + 2], of_q);
      of_k = fmaf(key.w, numbers_[j + 3], of_k);
      of_q = fmaf(query.w, numbers_[j + 3], of_q);
    }
    of_k = column_sum(of_k);
    of_q = column_sum(of_q);
    // What is left to forget by.
    const float decay = Gates::kOfComponents ? 1.0f : staged_.decay[r][0];
    const float delta = staged_.beta[r] * (staged_.v[r][column_] - decay * of_k);
    if (part_ == 0 && column_ < width_) {
      T* const out = args_.out.row(row) + int64_t{head_} * args_.heads.value_dim + first_column_;
      out[column_] = from_float<T>(fmaf(staged_.k_dot_q[r], delta, decay * of_q));
    }
#pragma unroll
    for (int j = 0; j < kNumbers; j += 4) {
      const auto key = *reinterpret_cast<const float4*>(k + delta_number_at(part_, j));
      numbers_[j] = fmaf(key.x, delta, decay * numbers_[j]);
      numbers_[j + 1] = fmaf(key.y, delta, decay * numbers_[j + 1]);
      numbers_[j + 2] = fmaf(key.z, delta, decay * numbers_[j + 2]);
      numbers_[j + 3] = fmaf(key.w, delta, decay * numbers_[j + 3]);
    }
  }

  const Arguments& args_;
  Staged& staged_;
  const int32_t head_, first_column_, width_;
  const int warp_, lane_, part_, column_;
  float numbers_[kNumbers];
};

// blockIdx: columns, value head, sequence.
template <class T, class Gates, int kKeyDim>
__global__ void __launch_bounds__(kDeltaThreads, kKeyDim <= 128 ? 3 : 1)
    advance_delta_states(const __grid_constant__ DeltaArguments<T, Gates> args) {
  using Block = DeltaBlock<T, Gates, kKeyDim>;
  __shared__ __align__(16) typename Block::Staged staged;
  let_next_kernel_start();
  wait_for_earlier_kernels();
  Block(args, staged).run(args.sequences.sequences[blockIdx.z]);
}

enum class DeltaGate : uint8_t { kSilu, kSigmoid };

template <class T>
struct DeltaGateArguments {
  RowsOf<const T> z;
  RowsOf<T> out;
  const float* norm;
  int32_t heads, value_dim;
  int64_t items;  // rows x heads
  float eps;
};

// out := out / rms(out) * norm * gate(z), a warp a row and head.
template <class T, DeltaGate kGate>
__global__ void __launch_bounds__(kDeltaThreads) gate_delta_heads(DeltaGateArguments<T> args) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int64_t item =
      int64_t{blockIdx.x} * kDeltaWarps + static_cast<int64_t>(threadIdx.x) / kWarpThreads;
  if (item >= args.items) return;
  const int64_t row = item / args.heads, at = item % args.heads * args.value_dim;
  T* const out = args.out.row(row) + at;
  const T* const z = args.z.row(row) + at;
  float squares = 0.0f;
  for (int i = lane; i < args.value_dim; i += kWarpThreads) {
    const float value = to_float(out[i]);
    squares = fmaf(value, value, squares);
  }
  squares = warp_sum(squares);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.value_dim) + args.eps);
  for (int i = lane; i < args.value_dim; i += kWarpThreads) {
    const float x = to_float(z[i]);
    const float gate = (kGate == DeltaGate::kSilu ? x : 1.0f) / (1.0f + __expf(-x));
    out[i] = from_float<T>(to_float(out[i]) * scale * args.norm[i] * gate);
  }
}

// --- launches ---

template <int kKeyDim, class T, class Gates>
void launch_delta_blocks(OpContext& context, const DeltaArguments<T, Gates>& arguments) {
  const DeltaHeads& heads = arguments.heads;
  launch(context, advance_delta_states<T, Gates, kKeyDim>,
         dim3(blocks_for(heads.value_dim, kDeltaBlockColumns),
              static_cast<unsigned>(heads.value_heads),
              static_cast<unsigned>(arguments.sequences.count)),
         kDeltaThreads, arguments);
}

// REQUIRES: heads.key_dim <= kDeltaKeyDimMax
template <class T, class Gates>
void launch_delta_states(OpContext& context, const DeltaArguments<T, Gates>& arguments) {
  const int32_t key_dim = arguments.heads.key_dim;
  if (key_dim <= 32) return launch_delta_blocks<32>(context, arguments);
  if (key_dim <= 128) return launch_delta_blocks<128>(context, arguments);
  launch_delta_blocks<kDeltaKeyDimMax>(context, arguments);
}

template <DeltaGate kGate, class T>
void launch_delta_gates(OpContext& context, const DeltaGateArguments<T>& arguments) {
  launch(context, gate_delta_heads<T, kGate>, blocks_for(arguments.items, kDeltaWarps),
         kDeltaThreads, arguments);
}

}  // namespace headrace::gpu
