// AltUp's predictions and corrections on CUDA: a block some columns of a row, of all streams; a
// thread a column. Every block makes the row's weights for itself, in shared memory.
//   streams [T, N D], x, out [T, D] f32, f16 or bf16;  modes [T, N], weights, scale f32
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/altup.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;

template <class T>
struct Arguments {
  gpu::RowsOf<T> streams;
  gpu::RowsOf<const float> modes;
  const float* weights;  // [N N, N] or [N, N]
  const float* scale;    // [D] or null; of corrections
  gpu::RowsOf<T> x;      // of corrections it is read
  gpu::RowsOf<T> out;    // of corrections
  int32_t count, active;
  int64_t columns;
};

// out[r] = sum over c of W[r][c] tanh(modes[c]), of `rows` rows. By all threads of the block.
__device__ void weigh(const float* weights, const float* modes, int32_t count, int32_t rows,
                      float* out) {
  for (auto r = static_cast<int32_t>(threadIdx.x); r < rows; r += kThreads) {
    float sum = 0.0f;
    for (int32_t c = 0; c < count; ++c) sum += weights[r * count + c] * tanhf(modes[c]);
    out[r] = sum;
  }
  __syncthreads();
}

template <int kStreams, class T>
__global__ void __launch_bounds__(kThreads) predict(Arguments<T> args) {
  __shared__ float weights[kStreams * kStreams];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t row = blockIdx.x;
  weigh(args.weights, args.modes.row(row), args.count, args.count * args.count, weights);
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= args.columns) return;
  T* const at = args.streams.row(row) + column;
  float before[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    before[i] = i < args.count ? gpu::to_float(at[i * args.columns]) : 0.0f;
  }
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    if (j >= args.count) continue;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      if (i < args.count) sum += before[i] * weights[j * args.count + i];
    }
    const T made = gpu::from_float<T>(sum + before[j]);
    at[j * args.columns] = made;
    if (j == args.active) args.x.row(row)[column] = made;
  }
}

template <int kStreams, class T>
__global__ void __launch_bounds__(kThreads) correct(Arguments<T> args) {
  __shared__ float weights[kStreams];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t row = blockIdx.x;
  weigh(args.weights, args.modes.row(row), args.count, args.count, weights);
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= args.columns) return;
  T* const at = args.streams.row(row) + column;
  const float made =
      gpu::to_float(args.x.row(row)[column]) - gpu::to_float(at[args.active * args.columns]);
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    if (j >= args.count) continue;
    const float before = gpu::to_float(at[j * args.columns]);
    const T after = gpu::from_float<T>(before + made * (weights[j] + 1.0f));
    at[j * args.columns] = after;
    if (j != args.active) continue;
    const float scale = args.scale == nullptr ? 1.0f : args.scale[column];
    args.out.row(row)[column] = gpu::from_float<T>(gpu::to_float(after) * scale);
  }
}

template <class T, class Args>
Arguments<T> arguments_of(const Args& args) {
  return {.streams = gpu::rows_of<T>(args.streams),
          .modes = gpu::rows_of<float>(args.modes),
          .weights = args.weights,
          .scale = nullptr,
          .x = {},
          .out = {},
          .count = static_cast<int32_t>(args.modes.columns()),
          .active = args.active,
          .columns = args.x.columns()};
}
template <class T>
void launch(OpContext& context, void (*kernel)(Arguments<T>), int64_t rows,
            const Arguments<T>& arguments) {
  const dim3 blocks(static_cast<unsigned>(rows), gpu::blocks_for(arguments.columns, kThreads));
  gpu::launch(context, kernel, blocks, kThreads, arguments);
}

template <int kStreams>
void run_predict(OpContext& context, const AltUpPredictArgs& args) {
  gpu::with_float_type(args.streams.dtype, [&]<class T>(gpu::ElementType<T>) {
    Arguments<T> arguments = arguments_of<T>(args);
    arguments.x = gpu::rows_of<T>(args.x);
    launch<T>(context, predict<kStreams, T>, args.x.rows(), arguments);
  });
}
template <int kStreams>
void run_correct(OpContext& context, const AltUpCorrectArgs& args) {
  gpu::with_float_type(args.streams.dtype, [&]<class T>(gpu::ElementType<T>) {
    Arguments<T> arguments = arguments_of<T>(args);
    // It is read alone.
    const auto x = gpu::rows_of<T>(args.x);
    arguments.x = {const_cast<T*>(x.data), x.stride};
    arguments.out = gpu::rows_of<T>(args.out);
    arguments.scale = args.scale;
    launch<T>(context, correct<kStreams, T>, args.x.rows(), arguments);
  });
}

template <int kStreams, class Args>
bool streams_fit(const DeviceTraits& traits, const Args& args) {
  return traits.kind == DeviceKind::kCuda && args.modes.columns() <= kStreams;
}

constexpr int kFew = 4;  // as models have
constexpr std::array kPredictKernels = {
    Kernel<AltUpPredictArgs>{"altup_predict/cuda/few", streams_fit<kFew>, run_predict<kFew>},
    Kernel<AltUpPredictArgs>{"altup_predict/cuda/many", streams_fit<kAltUpStreamsMax>,
                             run_predict<kAltUpStreamsMax>},
};
constexpr std::array kCorrectKernels = {
    Kernel<AltUpCorrectArgs>{"altup_correct/cuda/few", streams_fit<kFew>, run_correct<kFew>},
    Kernel<AltUpCorrectArgs>{"altup_correct/cuda/many", streams_fit<kAltUpStreamsMax>,
                             run_correct<kAltUpStreamsMax>},
};

}  // namespace

KernelTable<AltUpPredictArgs> altup_predict_cuda_kernels() { return kPredictKernels; }
KernelTable<AltUpCorrectArgs> altup_correct_cuda_kernels() { return kCorrectKernels; }

}  // namespace headrace
