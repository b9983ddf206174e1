// rg_lru on CUDA: a thread has a channel of one sequence and its state in a register, from the
// first of its rows to the last. Factors do not depend on the state: those of some rows are made
// side by side, while the next rows are on their way.
//   x, gate, out [T, C] f32, f16 or bf16; in, forget [T, C] f32; all arithmetic in f32
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/states/rg_lru.h"

namespace headrace {
namespace {

constexpr int kThreads = 64;
constexpr int kRowsAhead = 8;

template <class T>
struct LruArguments {
  int32_t channels;
  gpu::RowsOf<const T> x, gate;
  gpu::RowsOf<const float> in, forget;
  const float *in_bias, *forget_bias, *rate;  // [C]
  std::byte* states;                          // of entry 0
  int64_t state_stride;                       // bytes
  DeviceStates sequences;
  gpu::RowsOf<T> out;
};

__device__ __forceinline__ float lru_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// What some rows have of a channel.
struct LruRows {
  float x[kRowsAhead], in[kRowsAhead], forget[kRowsAhead], gate[kRowsAhead];
};

template <class T>
class LruChannel {
 public:
  __device__ LruChannel(const LruArguments<T>& args, int32_t channel)
      : args_(args),
        channel_(channel),
        in_bias_(args.in_bias[channel]),
        forget_bias_(args.forget_bias[channel]),
        rate_(args.rate[channel]) {}

  __device__ void run(const DeviceStateSequence& sequence) {
    LruRows next;
    load(sequence, 0, next);
    h_ = sequence.position > 0 ? *state(sequence.entry) : 0.0f;
    for (int32_t first = 0; first < sequence.row_count; first += kRowsAhead) {
      const LruRows rows = next;
      if (first + kRowsAhead < sequence.row_count) load(sequence, first + kRowsAhead, next);
      advance(sequence, first, rows);
    }
    *state(sequence.entry) = h_;
  }

 private:
  __device__ float* state(int32_t entry) const {
    return reinterpret_cast<float*>(args_.states + entry * args_.state_stride) + channel_;
  }

  __device__ __forceinline__ void load(const DeviceStateSequence& sequence, int32_t first,
                                       LruRows& rows) const {
#pragma unroll
    for (int i = 0; i < kRowsAhead; ++i) {
      const bool there = first + i < sequence.row_count;
      const int64_t row = sequence.row_first + first + i;
      rows.x[i] = there ? gpu::to_float(args_.x.row(row)[channel_]) : 0.0f;
      rows.in[i] = there ? args_.in.row(row)[channel_] : 0.0f;
      rows.forget[i] = there ? args_.forget.row(row)[channel_] : 0.0f;
      rows.gate[i] = there ? gpu::to_float(args_.gate.row(row)[channel_]) : 0.0f;
    }
  }

  // Rows [first, first + kRowsAhead) of the sequence's, as many as there are.
  __device__ __forceinline__ void advance(const DeviceStateSequence& sequence, int32_t first,
                                          const LruRows& rows) {
    float kept[kRowsAhead], taken[kRowsAhead];
#pragma unroll
    for (int i = 0; i < kRowsAhead; ++i) {
      const bool begins = sequence.position + first + i == 0;
      const float log_a = rate_ * lru_sigmoid(rows.forget[i] + forget_bias_);
      const float share = begins ? 1.0f : sqrtf(-expm1f(2.0f * log_a));
      kept[i] = begins ? 0.0f : expf(log_a);
      taken[i] = share * (rows.x[i] * lru_sigmoid(rows.in[i] + in_bias_));
    }
#pragma unroll
    for (int i = 0; i < kRowsAhead; ++i) {
      if (first + i >= sequence.row_count) break;
      h_ = fmaf(kept[i], h_, taken[i]);
      args_.out.row(sequence.row_first + first + i)[channel_] =
          gpu::from_float<T>(h_ * rows.gate[i]);
      save(sequence, sequence.position + first + i + 1);
    }
  }

  // Behind the sequence's first `tokens`.
  __device__ __forceinline__ void save(const DeviceStateSequence& sequence, int32_t tokens) {
    while (saved_ < sequence.save_count &&
           args_.sequences.saves[sequence.save_first + saved_].tokens == tokens) {
      *state(args_.sequences.saves[sequence.save_first + saved_].entry) = h_;
      ++saved_;
    }
  }

  const LruArguments<T>& args_;
  const int32_t channel_;
  const float in_bias_, forget_bias_, rate_;
  float h_ = 0.0f;
  int32_t saved_ = 0;
};

// blockIdx: channels, sequence.
template <class T>
__global__ void __launch_bounds__(kThreads)
    advance_channels(const __grid_constant__ LruArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto channel = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (channel >= args.channels) return;
  LruChannel<T>(args, channel).run(args.sequences.sequences[blockIdx.y]);
}

void run(OpContext& context, const RgLruArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    const LruArguments<T> arguments{.channels = static_cast<int32_t>(args.out.columns()),
                                    .x = gpu::rows_of<T>(args.x),
                                    .gate = gpu::rows_of<T>(args.gate),
                                    .in = gpu::rows_of<float>(args.in),
                                    .forget = gpu::rows_of<float>(args.forget),
                                    .in_bias = args.in_bias,
                                    .forget_bias = args.forget_bias,
                                    .rate = args.rate,
                                    .states = args.states.base,
                                    .state_stride = args.states.stride,
                                    .sequences = args.states.on_device,
                                    .out = gpu::rows_of<T>(args.out)};
    gpu::launch(context, advance_channels<T>,
                dim3(gpu::blocks_for(arguments.channels, kThreads),
                     static_cast<unsigned>(arguments.sequences.count)),
                kThreads, arguments);
  });
}

bool any(const DeviceTraits& traits, const RgLruArgs&) { return traits.kind == DeviceKind::kCuda; }

constexpr std::array kKernels = {Kernel<RgLruArgs>{"rg_lru/cuda/channels", any, run}};

}  // namespace

KernelTable<RgLruArgs> rg_lru_cuda_kernels() { return kKernels; }

}  // namespace headrace
