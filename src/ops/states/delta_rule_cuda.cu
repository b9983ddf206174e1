// delta_rule on CUDA. A block has 32 columns of a value head's state of one sequence, in registers
// from the first of its rows to the last: a thread has a column, and of its dk numbers those of one
// of four lanes, which add up what they read. Rows are staged in shared memory some at a time,
// normalised there. A second kernel norms and gates what was read, a warp a row and head.
//   qkv, z, out [T, ...] f32, f16 or bf16; gates [T, 2 value_heads] f32; all arithmetic in f32
#include <algorithm>
#include <array>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/states/delta_rule.h"

namespace headrace {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * gpu::kWarpThreads;
constexpr int kColumns = static_cast<int>(kDeltaColumns);
constexpr int kLanesOfColumn = 4, kColumnsOfWarp = gpu::kWarpThreads / kLanesOfColumn;
static_assert(kWarps * kColumnsOfWarp == kColumns);
constexpr int kStagedRows = 8;
constexpr int kKeyDimMax = 256;

template <class T>
struct DeltaArguments {
  DeltaHeads heads;
  int64_t keys;  // numbers of the keys of a row
  gpu::RowsOf<const T> qkv;
  gpu::RowsOf<const float> gates;
  const float* rate;
  const float* dt_bias;
  std::byte* states;  // of entry 0
  int64_t state_stride;
  DeviceStates sequences;
  gpu::RowsOf<T> out;

  // Of a block's columns.
  __device__ float* state(int32_t entry, int32_t head, int32_t column) const {
    return reinterpret_cast<float*>(states + entry * state_stride) +
           (int64_t{head} * heads.value_dim + column) * heads.key_dim;
  }
};

template <int kKeyDim>
struct StagedRows {
  float q[kStagedRows][kKeyDim], k[kStagedRows][kKeyDim];
  float v[kStagedRows][kColumns];
  float beta[kStagedRows], decay[kStagedRows], k_dot_q[kStagedRows];
};

// Where a thread's numbers of a column stand among dk: runs of four, so that the four lanes of a
// column read 64 bytes of a key side by side.
__device__ __forceinline__ constexpr int number_at(int lane_of_column, int j) {
  return j / 4 * 16 + lane_of_column * 4 + j % 4;
}

template <class T, int kKeyDim>
class DeltaBlock {
  static constexpr int kNumbers = kKeyDim / kLanesOfColumn;  // of a thread

 public:
  __device__ DeltaBlock(const DeltaArguments<T>& args, StagedRows<kKeyDim>& staged)
      : args_(args),
        staged_(staged),
        head_(static_cast<int32_t>(blockIdx.y)),
        first_column_(static_cast<int32_t>(blockIdx.x) * kColumns),
        width_(min(kColumns, args.heads.value_dim - first_column_)),
        warp_(static_cast<int>(threadIdx.x) / gpu::kWarpThreads),
        lane_(static_cast<int>(threadIdx.x) % gpu::kWarpThreads),
        part_(lane_ / kColumnsOfWarp),
        column_(warp_ * kColumnsOfWarp + lane_ % kColumnsOfWarp) {}

  __device__ void run(const DeviceStateSequence& sequence) {
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) numbers_[j] = 0.0f;
    if (sequence.position > 0) move_state<false>(sequence.entry);
    int32_t saved = 0;
    for (int32_t first = 0; first < sequence.row_count; first += kStagedRows) {
      const int32_t count = min(kStagedRows, sequence.row_count - first);
      __syncthreads();  // the rows before have been read
      for (int32_t r = warp_; r < count; r += kWarps) stage(sequence.row_first + first + r, r);
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
        const bool there = number_at(part_, j + n) < args_.heads.key_dim;
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
    const int32_t key_head = head_ / (heads.value_heads / heads.key_heads);
    const T* const qkv = args_.qkv.row(row);
    const T* const q = qkv + int64_t{key_head} * heads.key_dim;
    const T* const k = q + args_.keys;
    constexpr int kEach = kKeyDim / gpu::kWarpThreads;
    float queries[kEach], keys[kEach];
    float q_squares = 0.0f, k_squares = 0.0f;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int i = n * gpu::kWarpThreads + lane_;
      queries[n] = i < heads.key_dim ? gpu::to_float(q[i]) : 0.0f;
      keys[n] = i < heads.key_dim ? gpu::to_float(k[i]) : 0.0f;
      q_squares = fmaf(queries[n], queries[n], q_squares);
      k_squares = fmaf(keys[n], keys[n], k_squares);
    }
    q_squares = gpu::warp_sum(q_squares);
    k_squares = gpu::warp_sum(k_squares);
    const float q_scale =
        1.0f / (sqrtf(q_squares + 1e-6f) * sqrtf(static_cast<float>(heads.key_dim)));
    const float k_scale = 1.0f / sqrtf(k_squares + 1e-6f);
    float dot = 0.0f;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int i = n * gpu::kWarpThreads + lane_;
      queries[n] *= q_scale;
      keys[n] *= k_scale;
      dot = fmaf(queries[n], keys[n], dot);
      staged_.q[to][i] = queries[n];
      staged_.k[to][i] = keys[n];
    }
    dot = gpu::warp_sum(dot);
    const T* const v = qkv + 2 * args_.keys + int64_t{head_} * heads.value_dim + first_column_;
    staged_.v[to][lane_] = lane_ < width_ ? gpu::to_float(v[lane_]) : 0.0f;
    if (lane_ == 0) {
      const float* const gates = args_.gates.row(row);
      const float a = gates[heads.value_heads + head_] + args_.dt_bias[head_];
      const float softplus = a > 20.0f ? a : log1pf(expf(a));
      staged_.beta[to] = 1.0f / (1.0f + expf(-gates[head_]));
      staged_.decay[to] = expf(args_.rate[head_] * softplus);
      staged_.k_dot_q[to] = dot;
    }
  }

  // What the four lanes of a column have, in all of them.
  __device__ __forceinline__ static float column_sum(float value) {
#pragma unroll
    for (int distance = kColumnsOfWarp; distance < gpu::kWarpThreads; distance *= 2) {
      value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
  }

  __device__ __forceinline__ void advance(int32_t row, int32_t r) {
    const float* const q = staged_.q[r];
    const float* const k = staged_.k[r];
    float of_k = 0.0f, of_q = 0.0f;
#pragma unroll
    for (int j = 0; j < kNumbers; j += 4) {
      const auto key = *reinterpret_cast<const float4*>(k + number_at(part_, j));
      const auto query = *reinterpret_cast<const float4*>(q + number_at(part_, j));
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
    const float decay = staged_.decay[r];
    const float delta = staged_.beta[r] * (staged_.v[r][column_] - decay * of_k);
    if (part_ == 0 && column_ < width_) {
      T* const out = args_.out.row(row) + int64_t{head_} * args_.heads.value_dim + first_column_;
      out[column_] = gpu::from_float<T>(fmaf(staged_.k_dot_q[r], delta, decay * of_q));
    }
#pragma unroll
    for (int j = 0; j < kNumbers; j += 4) {
      const auto key = *reinterpret_cast<const float4*>(k + number_at(part_, j));
      numbers_[j] = fmaf(key.x, delta, decay * numbers_[j]);
      numbers_[j + 1] = fmaf(key.y, delta, decay * numbers_[j + 1]);
      numbers_[j + 2] = fmaf(key.z, delta, decay * numbers_[j + 2]);
      numbers_[j + 3] = fmaf(key.w, delta, decay * numbers_[j + 3]);
    }
  }

  const DeltaArguments<T>& args_;
  StagedRows<kKeyDim>& staged_;
  const int32_t head_, first_column_, width_;
  const int warp_, lane_, part_, column_;
  float numbers_[kNumbers];
};

// blockIdx: columns, value head, sequence.
template <class T, int kKeyDim>
__global__ void __launch_bounds__(kThreads, kKeyDim <= 128 ? 3 : 1)
    advance_states(const __grid_constant__ DeltaArguments<T> args) {
  __shared__ __align__(16) StagedRows<kKeyDim> staged;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  DeltaBlock<T, kKeyDim>(args, staged).run(args.sequences.sequences[blockIdx.z]);
}

template <class T>
struct GateArguments {
  gpu::RowsOf<const T> z;
  gpu::RowsOf<T> out;
  const float* norm;
  int32_t heads, value_dim;
  int64_t items;  // rows x heads
  float eps;
};

// out := out / rms(out) * norm * silu(z), a warp a row and head.
template <class T>
__global__ void __launch_bounds__(kThreads) gate_heads(GateArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int64_t item =
      int64_t{blockIdx.x} * kWarps + static_cast<int64_t>(threadIdx.x) / gpu::kWarpThreads;
  if (item >= args.items) return;
  const int64_t row = item / args.heads, at = item % args.heads * args.value_dim;
  T* const out = args.out.row(row) + at;
  const T* const z = args.z.row(row) + at;
  float squares = 0.0f;
  for (int i = lane; i < args.value_dim; i += gpu::kWarpThreads) {
    const float value = gpu::to_float(out[i]);
    squares = fmaf(value, value, squares);
  }
  squares = gpu::warp_sum(squares);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.value_dim) + args.eps);
  for (int i = lane; i < args.value_dim; i += gpu::kWarpThreads) {
    const float gate = gpu::to_float(z[i]);
    const float silu = gate / (1.0f + __expf(-gate));
    out[i] = gpu::from_float<T>(gpu::to_float(out[i]) * scale * args.norm[i] * silu);
  }
}

template <class T, int kKeyDim>
void launch_states(OpContext& context, const DeltaArguments<T>& arguments) {
  const DeltaHeads& heads = arguments.heads;
  gpu::launch(
      context, advance_states<T, kKeyDim>,
      dim3(gpu::blocks_for(heads.value_dim, kColumns), static_cast<unsigned>(heads.value_heads),
           static_cast<unsigned>(arguments.sequences.count)),
      kThreads, arguments);
}

void run(OpContext& context, const DeltaRuleArgs& args) {
  gpu::with_float_type(args.qkv.dtype, [&]<class T>(gpu::ElementType<T>) {
    const DeltaHeads& heads = args.heads;
    const DeltaArguments<T> arguments{.heads = heads,
                                      .keys = heads.keys(),
                                      .qkv = gpu::rows_of<T>(ConstTensorView(args.qkv)),
                                      .gates = gpu::rows_of<float>(ConstTensorView(args.gates)),
                                      .rate = args.rate,
                                      .dt_bias = args.dt_bias,
                                      .states = args.states.base,
                                      .state_stride = args.states.stride,
                                      .sequences = args.states.on_device,
                                      .out = gpu::rows_of<T>(args.out)};
    if (heads.key_dim <= 32) {
      launch_states<T, 32>(context, arguments);
    } else if (heads.key_dim <= 128) {
      launch_states<T, 128>(context, arguments);
    } else {
      launch_states<T, 256>(context, arguments);
    }
    const int64_t items = args.out.rows() * heads.value_heads;
    gpu::launch(context, gate_heads<T>, gpu::blocks_for(items, kWarps), kThreads,
                GateArguments<T>{.z = gpu::rows_of<T>(args.z),
                                 .out = gpu::rows_of<T>(args.out),
                                 .norm = args.norm,
                                 .heads = heads.value_heads,
                                 .value_dim = heads.value_dim,
                                 .items = items,
                                 .eps = args.norm_eps});
  });
}

bool keys_fit(const DeviceTraits& traits, const DeltaRuleArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.heads.key_dim <= kKeyDimMax;
}

constexpr std::array kKernels = {Kernel<DeltaRuleArgs>{"delta_rule/cuda/rows", keys_fit, run}};

}  // namespace

KernelTable<DeltaRuleArgs> delta_rule_cuda_kernels() { return kKernels; }

}  // namespace headrace
