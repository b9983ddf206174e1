// selective_scan on CUDA: a thread has a channel of one sequence and its state in registers, from
// the first of its rows to the last. B and C, which all channels share, are staged in shared memory
// some rows at a time.
//   x, z, out [T, C] f32, f16 or bf16; dt [T, C], b, c [T, N] f32; all arithmetic in f32
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/states/selective_scan.h"

namespace headrace {
namespace {

constexpr int kThreads = 64;  // whole blocks of kScanColumns
constexpr int kStagedRows = 16;
constexpr int kStateDimMax = 64;

template <class T>
struct ScanArguments {
  int32_t channels, state_dim;
  gpu::RowsOf<const T> x, z;
  gpu::RowsOf<const float> dt, b, c;
  const float* rate;
  const float* dt_bias;
  const float* skip;
  std::byte* states;  // of entry 0
  int64_t state_stride;
  DeviceStates sequences;
  gpu::RowsOf<T> out;
};

template <int kStateDim>
struct SharedRows {
  float b[kStagedRows][kStateDim], c[kStagedRows][kStateDim];
};

template <class T, int kStateDim>
class ScanChannel {
 public:
  __device__ ScanChannel(const ScanArguments<T>& args, SharedRows<kStateDim>& staged)
      : args_(args),
        staged_(staged),
        channel_(static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x)),
        there_(channel_ < args.channels) {
    const int32_t at = there_ ? channel_ : 0;
    dt_bias_ = args.dt_bias[at];
    skip_ = args.skip[at];
#pragma unroll
    for (int n = 0; n < kStateDim; ++n) {
      rate_[n] = n < args.state_dim ? args.rate[int64_t{n} * args.channels + at] : 0.0f;
    }
  }

  __device__ void run(const DeviceStateSequence& sequence) {
#pragma unroll
    for (int n = 0; n < kStateDim; ++n) state_[n] = 0.0f;
    if (sequence.position > 0) move_state<false>(sequence.entry);
    int32_t saved = 0;
    for (int32_t first = 0; first < sequence.row_count; first += kStagedRows) {
      const int32_t count = min(kStagedRows, sequence.row_count - first);
      __syncthreads();  // the rows before have been read
      stage(sequence.row_first + first, count);
      __syncthreads();
      for (int32_t r = 0; r < count; ++r) {
        if (there_) advance(sequence.row_first + first + r, r);
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
  // From or to the memory of an entry.
  template <bool kStore>
  __device__ __forceinline__ void move_state(int32_t entry) {
    if (!there_) return;
    constexpr int kColumns = static_cast<int>(kScanColumns);
    const int32_t column = channel_ / kColumns * kColumns;
    const int32_t width = min(kColumns, args_.channels - column);
    float* const at = reinterpret_cast<float*>(args_.states + entry * args_.state_stride) +
                      int64_t{column} * args_.state_dim + (channel_ - column);
#pragma unroll
    for (int n = 0; n < kStateDim; ++n) {
      if (n >= args_.state_dim) break;
      if constexpr (kStore) {
        at[n * width] = state_[n];
      } else {
        state_[n] = at[n * width];
      }
    }
  }

  __device__ __forceinline__ void stage(int32_t row, int32_t count) {
    for (int i = static_cast<int>(threadIdx.x); i < count * kStateDim; i += kThreads) {
      const int r = i / kStateDim, n = i % kStateDim;
      staged_.b[r][n] = n < args_.state_dim ? args_.b.row(row + r)[n] : 0.0f;
      staged_.c[r][n] = n < args_.state_dim ? args_.c.row(row + r)[n] : 0.0f;
    }
  }

  __device__ __forceinline__ void advance(int32_t row, int32_t r) {
    const float raw = args_.dt.row(row)[channel_] + dt_bias_;
    const float dt = raw > 20.0f ? raw : log1pf(expf(raw));
    const float x = gpu::to_float(args_.x.row(row)[channel_]);
    const float gate = gpu::to_float(args_.z.row(row)[channel_]);
    const float taken = dt * x;
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kStateDim; ++n) {
      state_[n] = fmaf(staged_.b[r][n], taken, __expf(rate_[n] * dt) * state_[n]);
      sum = fmaf(staged_.c[r][n], state_[n], sum);
    }
    const float y = fmaf(skip_, x, sum) * (gate / (1.0f + __expf(-gate)));
    args_.out.row(row)[channel_] = gpu::from_float<T>(y);
  }

  const ScanArguments<T>& args_;
  SharedRows<kStateDim>& staged_;
  const int32_t channel_;
  const bool there_;
  float dt_bias_, skip_;
  float rate_[kStateDim], state_[kStateDim];
};

// blockIdx: channels, sequence.
template <class T, int kStateDim>
__global__ void __launch_bounds__(kThreads)
    scan_channels(const __grid_constant__ ScanArguments<T> args) {
  __shared__ SharedRows<kStateDim> staged;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  ScanChannel<T, kStateDim>(args, staged).run(args.sequences.sequences[blockIdx.y]);
}

template <class T, int kStateDim>
void launch_scan(OpContext& context, const ScanArguments<T>& arguments) {
  gpu::launch(context, scan_channels<T, kStateDim>,
              dim3(gpu::blocks_for(arguments.channels, kThreads),
                   static_cast<unsigned>(arguments.sequences.count)),
              kThreads, arguments);
}

void run(OpContext& context, const SelectiveScanArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    const ScanArguments<T> arguments{.channels = static_cast<int32_t>(args.out.columns()),
                                     .state_dim = args.state_dim,
                                     .x = gpu::rows_of<T>(args.x),
                                     .z = gpu::rows_of<T>(args.z),
                                     .dt = gpu::rows_of<float>(args.dt),
                                     .b = gpu::rows_of<float>(args.b),
                                     .c = gpu::rows_of<float>(args.c),
                                     .rate = args.rate,
                                     .dt_bias = args.dt_bias,
                                     .skip = args.skip,
                                     .states = args.states.base,
                                     .state_stride = args.states.stride,
                                     .sequences = args.states.on_device,
                                     .out = gpu::rows_of<T>(args.out)};
    if (args.state_dim <= 16) {
      launch_scan<T, 16>(context, arguments);
    } else {
      launch_scan<T, kStateDimMax>(context, arguments);
    }
  });
}

bool states_fit(const DeviceTraits& traits, const SelectiveScanArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.state_dim <= kStateDimMax;
}

constexpr std::array kKernels = {
    Kernel<SelectiveScanArgs>{"selective_scan/cuda/channels", states_fit, run}};

}  // namespace

KernelTable<SelectiveScanArgs> selective_scan_cuda_kernels() { return kKernels; }

}  // namespace headrace
