// token_shift on CUDA: a thread has a column of a tile of a sequence's rows, and reads the row
// before the tile again, or the state. The state behind a sequence is written by the thread of its
// only tile; where a sequence may have several, by a kernel behind this one, as the first tile may
// still read the state that was there.
//   x, out f32, f16 or bf16; states and arithmetic in f32
#include <algorithm>
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/states/token_shift.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;
constexpr int kTileRows = 8;
constexpr unsigned kTilesMax = 1024;  // of a sequence at a time

template <class T>
struct ShiftArguments {
  gpu::RowsOf<const T> x;
  const float* mix;      // [mixes, D]
  std::byte* states;     // of entry 0
  int64_t state_stride;  // bytes
  DeviceStates sequences;
  gpu::RowsOf<T> out;
  int32_t columns, mixes;
  bool one_tile;

  __device__ float* state(int32_t entry) const {
    return reinterpret_cast<float*>(states + entry * state_stride);
  }
  // Of row `row` of a sequence's in this step; -1: of the one before them, zero where there is
  // none.
  __device__ float value(const DeviceStateSequence& sequence, int32_t row, int32_t column) const {
    if (row >= 0) return gpu::to_float(x.row(sequence.row_first + row)[column]);
    return sequence.position > 0 ? state(sequence.entry)[column] : 0.0f;
  }
};

template <class T>
__device__ __forceinline__ void write_states(const ShiftArguments<T>& args,
                                             const DeviceStateSequence& sequence, int32_t column) {
  for (int32_t i = 0; i < sequence.save_count; ++i) {
    const StateCopy save = args.sequences.saves[sequence.save_first + i];
    args.state(save.entry)[column] =
        args.value(sequence, save.tokens - sequence.position - 1, column);
  }
  args.state(sequence.entry)[column] = args.value(sequence, sequence.row_count - 1, column);
}

// The rows of a tile are all read before the first of them is mixed.
template <class T>
__device__ __forceinline__ void shift_tile(const ShiftArguments<T>& args,
                                           const DeviceStateSequence& sequence, int32_t first,
                                           int32_t column) {
  float x[kTileRows + 1];  // the first is the row before
#pragma unroll
  for (int i = 0; i <= kTileRows; ++i) {
    const int32_t row = first + i - 1;
    x[i] = row < sequence.row_count ? args.value(sequence, row, column) : 0.0f;
  }
  for (int32_t m = 0; m < args.mixes; ++m) {
    const int64_t at = int64_t{m} * args.columns + column;
    const float mix = args.mix[at];
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      if (first + i >= sequence.row_count) break;
      T* const out = args.out.row(sequence.row_first + first + i);
      out[at] = gpu::from_float<T>(fmaf(x[i] - x[i + 1], mix, x[i + 1]));
    }
  }
}

// blockIdx: columns, sequence, tile of its rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    shift_tiles(const __grid_constant__ ShiftArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto column = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (column >= args.columns) return;
  const DeviceStateSequence sequence = args.sequences.sequences[blockIdx.y];
  for (auto first = static_cast<int32_t>(blockIdx.z) * kTileRows; first < sequence.row_count;
       first += static_cast<int32_t>(gridDim.z) * kTileRows) {
    shift_tile(args, sequence, first, column);
  }
  if (args.one_tile) write_states(args, sequence, column);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    keep_rows(const __grid_constant__ ShiftArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto column = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (column >= args.columns) return;
  write_states(args, args.sequences.sequences[blockIdx.y], column);
}

void run(OpContext& context, const TokenShiftArgs& args) {
  const DeviceStates& sequences = args.states.on_device;
  const unsigned columns = gpu::blocks_for(args.x.columns(), kThreads);
  const auto count = static_cast<unsigned>(sequences.count);
  const unsigned tiles = std::min(kTilesMax, gpu::blocks_for(sequences.rows_max, kTileRows));
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    const ShiftArguments<T> arguments{.x = gpu::rows_of<T>(args.x),
                                      .mix = args.mix,
                                      .states = args.states.base,
                                      .state_stride = args.states.stride,
                                      .sequences = sequences,
                                      .out = gpu::rows_of<T>(args.out),
                                      .columns = static_cast<int32_t>(args.x.columns()),
                                      .mixes = args.mixes,
                                      .one_tile = tiles <= 1};
    gpu::launch(context, shift_tiles<T>, dim3(columns, count, std::max(tiles, 1u)), kThreads,
                arguments);
    if (arguments.one_tile) return;
    gpu::launch(context, keep_rows<T>, dim3(columns, count), kThreads, arguments);
  });
}

bool any(const DeviceTraits& traits, const TokenShiftArgs&) {
  return traits.kind == DeviceKind::kCuda;
}

constexpr std::array kKernels = {Kernel<TokenShiftArgs>{"token_shift/cuda/tiles", any, run}};

}  // namespace

KernelTable<TokenShiftArgs> token_shift_cuda_kernels() { return kKernels; }

}  // namespace headrace
