// causal_conv on CUDA: a thread has a channel of a tile of a sequence's rows, and reads the rows
// before the tile again, or the state. The state behind a sequence is written by the thread of its
// only tile; where a sequence may have several, by a kernel behind this one, as the tiles before
// the last may still read the state that was there.
//   x, before, behind, out [T, C] f32, f16 or bf16; states, weights and sums in f32
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/states/causal_conv.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;
constexpr int kTileRows = 16;
constexpr int kTapsMin = 2, kTapsMax = 8;
constexpr unsigned kTilesMax = 512;  // of a sequence at a time

template <class T>
struct ConvArguments {
  gpu::RowsOf<const T> x, before, behind;  // the last two may have no data
  const float* weight;                     // [taps, C]
  const float* bias;                       // [C] or null
  std::byte* states;                       // of entry 0
  int64_t state_stride;                    // bytes
  DeviceStates sequences;
  gpu::RowsOf<T> out;
  int32_t channels;
  bool silu, one_tile;

  __device__ float* state(int32_t entry) const {
    return reinterpret_cast<float*>(states + entry * state_stride);
  }
  __device__ float value(int64_t row, int32_t channel) const {
    const float value = gpu::to_float(x.row(row)[channel]);
    return before.data == nullptr ? value : value * gpu::to_float(before.row(row)[channel]);
  }
};

// The sequence's value `back` rows before row `row` of it in this step.
template <class T, int kTaps>
__device__ __forceinline__ float value_before(const ConvArguments<T>& args,
                                              const DeviceStateSequence& sequence, int32_t row,
                                              int32_t back, int32_t channel) {
  const int32_t at = row - back;
  if (at >= 0) return args.value(sequence.row_first + at, channel);
  if (sequence.position == 0) return 0.0f;
  return args.state(sequence.entry)[int64_t{kTaps - 1 + at} * args.channels + channel];
}

// The state behind the first `rows` rows. In place, ascending: what is read lies ahead.
template <class T, int kTaps>
__device__ __forceinline__ void write_state(const ConvArguments<T>& args,
                                            const DeviceStateSequence& sequence, int32_t rows,
                                            int32_t entry, int32_t channel) {
  float* const state = args.state(entry) + channel;
#pragma unroll
  for (int j = 0; j < kTaps - 1; ++j) {
    state[int64_t{j} * args.channels] =
        value_before<T, kTaps>(args, sequence, rows, kTaps - 1 - j, channel);
  }
}

template <class T, int kTaps>
__device__ __forceinline__ void write_states(const ConvArguments<T>& args,
                                             const DeviceStateSequence& sequence, int32_t channel) {
  for (int32_t i = 0; i < sequence.save_count; ++i) {
    const StateCopy save = args.sequences.saves[sequence.save_first + i];
    write_state<T, kTaps>(args, sequence, save.tokens - sequence.position, save.entry, channel);
  }
  write_state<T, kTaps>(args, sequence, sequence.row_count, sequence.entry, channel);
}

// blockIdx: channels, sequence, tile of its rows.
template <class T, int kTaps>
__global__ void __launch_bounds__(kThreads)
    convolve_tiles(const __grid_constant__ ConvArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto channel = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (channel >= args.channels) return;
  const DeviceStateSequence sequence = args.sequences.sequences[blockIdx.y];
  float weights[kTaps];
#pragma unroll
  for (int j = 0; j < kTaps; ++j) weights[j] = args.weight[int64_t{j} * args.channels + channel];
  const float bias = args.bias == nullptr ? 0.0f : args.bias[channel];
  for (auto first = static_cast<int32_t>(blockIdx.z) * kTileRows; first < sequence.row_count;
       first += static_cast<int32_t>(gridDim.z) * kTileRows) {
    float window[kTaps];  // the last is the row's own
#pragma unroll
    for (int j = 1; j < kTaps; ++j) {
      window[j] = value_before<T, kTaps>(args, sequence, first, kTaps - j, channel);
    }
    const int32_t last = min(first + kTileRows, sequence.row_count);
    for (int32_t row = first; row < last; ++row) {
#pragma unroll
      for (int j = 0; j + 1 < kTaps; ++j) window[j] = window[j + 1];
      const int64_t at = sequence.row_first + row;
      window[kTaps - 1] = args.value(at, channel);
      float sum = bias;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) sum = fmaf(weights[j], window[j], sum);
      if (args.silu) sum = sum / (1.0f + __expf(-sum));
      if (args.behind.data != nullptr) sum *= gpu::to_float(args.behind.row(at)[channel]);
      args.out.row(at)[channel] = gpu::from_float<T>(sum);
    }
  }
  if (args.one_tile) write_states<T, kTaps>(args, sequence, channel);
}

template <class T, int kTaps>
__global__ void __launch_bounds__(kThreads)
    keep_states(const __grid_constant__ ConvArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto channel = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (channel >= args.channels) return;
  write_states<T, kTaps>(args, args.sequences.sequences[blockIdx.y], channel);
}

template <class T, int kTaps>
void launch_taps(OpContext& context, const ConvArguments<T>& arguments) {
  const unsigned channels = gpu::blocks_for(arguments.channels, kThreads);
  const auto sequences = static_cast<unsigned>(arguments.sequences.count);
  const unsigned tiles =
      arguments.one_tile
          ? 1
          : std::min(kTilesMax, gpu::blocks_for(arguments.sequences.rows_max, kTileRows));
  gpu::launch(context, convolve_tiles<T, kTaps>, dim3(channels, sequences, tiles), kThreads,
              arguments);
  if (arguments.one_tile) return;
  gpu::launch(context, keep_states<T, kTaps>, dim3(channels, sequences), kThreads, arguments);
}

template <class T, int kTaps>
void launch_any_taps(OpContext& context, const ConvArguments<T>& arguments, int32_t taps) {
  if constexpr (kTaps < kTapsMax) {
    if (taps > kTaps) return launch_any_taps<T, kTaps + 1>(context, arguments, taps);
  }
  launch_taps<T, kTaps>(context, arguments);
}

void run(OpContext& context, const CausalConvArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    const DeviceStates& sequences = args.states.on_device;
    const ConvArguments<T> arguments{.x = gpu::rows_of<T>(args.x),
                                     .before = gpu::rows_of<T>(args.before),
                                     .behind = gpu::rows_of<T>(args.behind),
                                     .weight = args.weight,
                                     .bias = args.bias,
                                     .states = args.states.base,
                                     .state_stride = args.states.stride,
                                     .sequences = sequences,
                                     .out = gpu::rows_of<T>(args.out),
                                     .channels = static_cast<int32_t>(args.out.columns()),
                                     .silu = args.activation == ConvActivation::kSilu,
                                     .one_tile = sequences.rows_max <= kTileRows};
    launch_any_taps<T, kTapsMin>(context, arguments, args.taps);
  });
}

bool few_taps(const DeviceTraits& traits, const CausalConvArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.taps >= kTapsMin && args.taps <= kTapsMax;
}

constexpr std::array kKernels = {Kernel<CausalConvArgs>{"causal_conv/cuda/tiles", few_taps, run}};

}  // namespace

KernelTable<CausalConvArgs> causal_conv_cuda_kernels() { return kKernels; }

}  // namespace headrace
