// ssd_scan on CUDA. A block has 32 columns of a head's state of one sequence, in registers from the
// first of its rows to the last: a thread has a column, and of its N components those of one of
// four lanes, which add up what they read. Rows are staged in shared memory some at a time.
//   xbc, out [T, ...] f32, f16 or bf16; dt [T, 2 heads] f32; all arithmetic in f32
#include <algorithm>
#include <array>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/states/ssd_scan.h"

namespace headrace {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * gpu::kWarpThreads;
constexpr int kColumns = static_cast<int>(kSsdColumns);
constexpr int kLanesOfColumn = 4, kColumnsOfWarp = gpu::kWarpThreads / kLanesOfColumn;
static_assert(kWarps * kColumnsOfWarp == kColumns);
constexpr int kStagedRows = 8;
constexpr int kStateDimMax = 256;

template <class T>
struct SsdArguments {
  SsdHeads heads;
  int64_t values, keys;  // numbers of x, and of B, of a row
  gpu::RowsOf<const T> xbc;
  gpu::RowsOf<const float> dt;
  const float* rate;
  const float* dt_bias;
  const float* skip;
  TimeStepRule time_step;
  std::byte* states;  // of entry 0
  int64_t state_stride;
  DeviceStates sequences;
  gpu::RowsOf<T> out;

  // Of a block's columns.
  __device__ float* state(int32_t entry, int32_t head, int32_t column) const {
    return reinterpret_cast<float*>(states + entry * state_stride) +
           (int64_t{head} * heads.head_dim + column) * heads.state_dim;
  }
};

template <int kStateDim>
struct SsdRows {
  float b[kStagedRows][kStateDim], c[kStagedRows][kStateDim];
  float x[kStagedRows][kColumns];
  float dt[kStagedRows], decay[kStagedRows];
};

// Where a thread's components of a column stand among N: runs of four, so that the four lanes of a
// column read 64 bytes of B side by side.
__device__ __forceinline__ constexpr int component_at(int lane_of_column, int j) {
  return j / 4 * 16 + lane_of_column * 4 + j % 4;
}

template <class T, int kStateDim>
class SsdBlock {
  static constexpr int kNumbers = kStateDim / kLanesOfColumn;  // of a thread

 public:
  __device__ SsdBlock(const SsdArguments<T>& args, SsdRows<kStateDim>& staged)
      : args_(args),
        staged_(staged),
        head_(static_cast<int32_t>(blockIdx.y)),
        first_column_(static_cast<int32_t>(blockIdx.x) * kColumns),
        width_(min(kColumns, args.heads.head_dim - first_column_)),
        warp_(static_cast<int>(threadIdx.x) / gpu::kWarpThreads),
        lane_(static_cast<int>(threadIdx.x) % gpu::kWarpThreads),
        part_(lane_ / kColumnsOfWarp),
        column_(warp_ * kColumnsOfWarp + lane_ % kColumnsOfWarp),
        skip_(args.skip[head_]) {}

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
  // From or to the memory of an entry, [N, width] dense.
  template <bool kStore>
  __device__ __forceinline__ void move_state(int32_t entry) {
    if (column_ >= width_) return;
    float* at = args_.state(entry, head_, first_column_) + part_ * 4 * width_ + column_;
#pragma unroll
    for (int j = 0; j < kNumbers; j += 4, at += 16 * width_) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const bool there = component_at(part_, j + n) < args_.heads.state_dim;
        if constexpr (kStore) {
          if (there) at[n * width_] = numbers_[j + n];
        } else {
          numbers_[j + n] = there ? at[n * width_] : 0.0f;
        }
      }
    }
  }

  // By a warp: B and C of one row, its x and its time step.
  __device__ void stage(int32_t row, int32_t to) {
    const SsdHeads& heads = args_.heads;
    const int32_t group = head_ / (heads.heads / heads.groups);
    const T* const xbc = args_.xbc.row(row);
    const T* const b = xbc + args_.values + int64_t{group} * heads.state_dim;
    const T* const c = b + args_.keys;
#pragma unroll
    for (int i = lane_; i < kStateDim; i += gpu::kWarpThreads) {
      staged_.b[to][i] = i < heads.state_dim ? gpu::to_float(b[i]) : 0.0f;
      staged_.c[to][i] = i < heads.state_dim ? gpu::to_float(c[i]) : 0.0f;
    }
    const T* const x = xbc + int64_t{head_} * heads.head_dim + first_column_;
    staged_.x[to][lane_] = lane_ < width_ ? gpu::to_float(x[lane_]) : 0.0f;
    if (lane_ == 0) {
      const float dt = time_step(row);
      staged_.dt[to] = dt;
      staged_.decay[to] = expf(args_.rate[head_] * dt);
    }
  }

  __device__ __forceinline__ float time_step(int32_t row) const {
    const TimeStepRule& rule = args_.time_step;
    if (rule.min == rule.max) return rule.min;  // is_constant()
    const float raw = fmaf(rule.scale, args_.dt.row(row)[head_], args_.dt_bias[head_]);
    const float softplus = raw > 20.0f ? raw : log1pf(expf(raw));
    return fminf(fmaxf(softplus, rule.min), rule.max);
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
    const float* const b = staged_.b[r];
    const float* const c = staged_.c[r];
    const float decay = staged_.decay[r], x = staged_.x[r][column_];
    const float taken = staged_.dt[r] * x;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kNumbers; j += 4) {
      const auto in = *reinterpret_cast<const float4*>(b + component_at(part_, j));
      const auto out = *reinterpret_cast<const float4*>(c + component_at(part_, j));
      numbers_[j] = fmaf(in.x, taken, decay * numbers_[j]);
      sum = fmaf(out.x, numbers_[j], sum);
      numbers_[j + 1] = fmaf(in.y, taken, decay * numbers_[j + 1]);
      sum = fmaf(out.y, numbers_[j + 1], sum);
      numbers_[j + 2] = fmaf(in.z, taken, decay * numbers_[j + 2]);
      sum = fmaf(out.z, numbers_[j + 2], sum);
      numbers_[j + 3] = fmaf(in.w, taken, decay * numbers_[j + 3]);
      sum = fmaf(out.w, numbers_[j + 3], sum);
    }
    sum = column_sum(sum);
    if (part_ != 0 || column_ >= width_) return;
    T* const out = args_.out.row(row) + int64_t{head_} * args_.heads.head_dim + first_column_;
    out[column_] = gpu::from_float<T>(fmaf(skip_, x, sum));
  }

  const SsdArguments<T>& args_;
  SsdRows<kStateDim>& staged_;
  const int32_t head_, first_column_, width_;
  const int warp_, lane_, part_, column_;
  const float skip_;
  float numbers_[kNumbers];
};

// blockIdx: columns, head, sequence.
template <class T, int kStateDim>
__global__ void __launch_bounds__(kThreads, kStateDim <= 128 ? 4 : 2)
    scan_rows(const __grid_constant__ SsdArguments<T> args) {
  __shared__ __align__(16) SsdRows<kStateDim> staged;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  SsdBlock<T, kStateDim>(args, staged).run(args.sequences.sequences[blockIdx.z]);
}

template <class T, int kStateDim>
void launch_scan(OpContext& context, const SsdArguments<T>& arguments) {
  const SsdHeads& heads = arguments.heads;
  gpu::launch(context, scan_rows<T, kStateDim>,
              dim3(gpu::blocks_for(heads.head_dim, kColumns), static_cast<unsigned>(heads.heads),
                   static_cast<unsigned>(arguments.sequences.count)),
              kThreads, arguments);
}

void run(OpContext& context, const SsdScanArgs& args) {
  gpu::with_float_type(args.xbc.dtype, [&]<class T>(gpu::ElementType<T>) {
    const SsdHeads& heads = args.heads;
    const SsdArguments<T> arguments{.heads = heads,
                                    .values = heads.values(),
                                    .keys = heads.keys(),
                                    .xbc = gpu::rows_of<T>(args.xbc),
                                    .dt = gpu::rows_of<float>(ConstTensorView(args.dt)),
                                    .rate = args.rate,
                                    .dt_bias = args.dt_bias,
                                    .skip = args.skip,
                                    .time_step = args.time_step,
                                    .states = args.states.base,
                                    .state_stride = args.states.stride,
                                    .sequences = args.states.on_device,
                                    .out = gpu::rows_of<T>(args.out)};
    if (heads.state_dim <= 32) {
      launch_scan<T, 32>(context, arguments);
    } else if (heads.state_dim <= 128) {
      launch_scan<T, 128>(context, arguments);
    } else {
      launch_scan<T, 256>(context, arguments);
    }
  });
}

bool states_fit(const DeviceTraits& traits, const SsdScanArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.heads.state_dim <= kStateDimMax;
}

constexpr std::array kKernels = {Kernel<SsdScanArgs>{"ssd_scan/cuda/rows", states_fit, run}};

}  // namespace

KernelTable<SsdScanArgs> ssd_scan_cuda_kernels() { return kKernels; }

}  // namespace headrace
