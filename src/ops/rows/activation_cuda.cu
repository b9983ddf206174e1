// Plain and gated activations on CUDA: out = act(x), out = act(gate) * up.
//   gate_up [T, 2F], x, out [T, F] f32, f16 or bf16; arithmetic in f32
// A thread takes 16 bytes of one row (or one element, where rows are not aligned).
#include <array>
#include <type_traits>

#include "ops/cuda_launch.cuh"
#include "ops/rows/activation.h"
#include "ops/rows/activation_cuda.cuh"

namespace headrace {
namespace {

constexpr int kThreads = 256;

// What no product on a GPU applies to what it has summed.
struct Tanh {
  static __device__ float apply(float x) { return tanhf(x); }
};
struct Sigmoid {
  static __device__ float apply(float x) { return 1.0f / (1.0f + __expf(-x)); }
};
// A NaN stays one: it is neither above 0 nor below the bound, and is subtracted.
struct Xielu {
  static __device__ float apply(float x, const XieluParameters& of) {
    if (x > 0.0f) return (of.p * x + of.b) * x;
    return of.n * (expm1f(x < of.e ? x : of.e) - x) + of.b * x;
  }
};

// `gate` and `up` may be halves of one row; `up` has no data for a plain activation.
template <class T>
struct Arguments {
  gpu::RowsOf<const T> gate;
  gpu::RowsOf<const T> up;
  gpu::RowsOf<T> out;
  int32_t accesses;  // of a row
  XieluParameters xielu;
};

template <class Act>
__device__ __forceinline__ float result_of(float x, const XieluParameters& xielu) {
  if constexpr (std::is_same_v<Act, Xielu>)
    return Act::apply(x, xielu);
  else
    return Act::apply(x);
}

template <class Act, class T, int kWidth>
__global__ void __launch_bounds__(kThreads) activate(Arguments<T> args) {
  gpu::let_next_kernel_start();
  const auto row = static_cast<int32_t>(blockIdx.x);
  gpu::wait_for_earlier_kernels();
  const auto access = static_cast<int32_t>(blockIdx.y * kThreads + threadIdx.x);
  if (access >= args.accesses) return;
  const int64_t at = static_cast<int64_t>(access) * kWidth;
  auto value = gpu::Vector<T, kWidth>::load(args.gate.row(row) + at);
  gpu::Vector<T, kWidth> up;
  if (args.up.data != nullptr) up = gpu::Vector<T, kWidth>::load(args.up.row(row) + at);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    float result = result_of<Act>(gpu::to_float(value.values[i]), args.xielu);
    if (args.up.data != nullptr) result *= gpu::up_of<Act>(gpu::to_float(up.values[i]));
    value.values[i] = gpu::from_float<T>(result);
  }
  value.store(args.out.row(row) + at);
}

template <class T, int kWidth>
void launch(OpContext& context, Activation activation, int64_t rows, const Arguments<T>& args) {
  const unsigned per_row = gpu::blocks_for(args.accesses, kThreads);
  const dim3 blocks(static_cast<unsigned>(rows), per_row);
  switch (activation) {
    case Activation::kSilu:
      return gpu::launch(context, activate<gpu::Silu, T, kWidth>, blocks, kThreads, args);
    case Activation::kGeluTanh:
      return gpu::launch(context, activate<gpu::GeluTanh, T, kWidth>, blocks, kThreads, args);
    case Activation::kRelu:
      return gpu::launch(context, activate<gpu::Relu, T, kWidth>, blocks, kThreads, args);
    case Activation::kReluSquared:
      return gpu::launch(context, activate<gpu::ReluSquared, T, kWidth>, blocks, kThreads, args);
    case Activation::kClampedSwish:
      return gpu::launch(context, activate<gpu::ClampedSwish, T, kWidth>, blocks, kThreads, args);
    case Activation::kGeluErf:
      return gpu::launch(context, activate<gpu::GeluErf, T, kWidth>, blocks, kThreads, args);
    case Activation::kTanh:
      return gpu::launch(context, activate<Tanh, T, kWidth>, blocks, kThreads, args);
    case Activation::kSigmoid:
      return gpu::launch(context, activate<Sigmoid, T, kWidth>, blocks, kThreads, args);
    case Activation::kXielu:
      return gpu::launch(context, activate<Xielu, T, kWidth>, blocks, kThreads, args);
  }
}

// `x` holds 2F columns if it is gated and `up` no data.
template <bool kWide>
void run(OpContext& context, const ConstTensorView& x, const ConstTensorView& up,
         Activation activation, const TensorView& out, const XieluParameters& xielu = {}) {
  gpu::with_float_type(x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    Arguments<T> args{.gate = gpu::rows_of<T>(x),
                      .up = gpu::rows_of<T>(up),
                      .out = gpu::rows_of<T>(out),
                      .accesses = static_cast<int32_t>(out.columns() / kWidth),
                      .xielu = xielu};
    if (x.columns() != out.columns()) {
      args.up = {args.gate.data + out.columns(), args.gate.stride};
    }
    launch<T, kWidth>(context, activation, out.rows(), args);
  });
}
template <bool kWide>
void run_gated(OpContext& context, const GatedActivationArgs& args) {
  run<kWide>(context, args.gate_up, args.up, args.activation, args.out);
}
template <bool kWide>
void run_plain(OpContext& context, const ActivationArgs& args) {
  run<kWide>(context, args.x, {}, args.activation, args.out, args.xielu);
}

template <class Args>
bool any(const DeviceTraits& traits, const Args&) {
  return traits.kind == DeviceKind::kCuda;
}
bool wide(const ConstTensorView& x, const TensorView& out) {
  return gpu::whole_accesses(x.dtype, out.columns()) && gpu::rows_aligned(x) &&
         gpu::rows_aligned(out);
}
bool wide_gated(const DeviceTraits& traits, const GatedActivationArgs& args) {
  return any(traits, args) && wide(args.gate_up, args.out) && gpu::rows_aligned(args.up);
}
bool wide_plain(const DeviceTraits& traits, const ActivationArgs& args) {
  return any(traits, args) && wide(args.x, args.out);
}

constexpr std::array kGatedKernels = {
    Kernel<GatedActivationArgs>{"gated_activation/cuda/wide", wide_gated, run_gated<true>},
    Kernel<GatedActivationArgs>{"gated_activation/cuda/any", any, run_gated<false>},
};
constexpr std::array kPlainKernels = {
    Kernel<ActivationArgs>{"activation/cuda/wide", wide_plain, run_plain<true>},
    Kernel<ActivationArgs>{"activation/cuda/any", any, run_plain<false>},
};

}  // namespace

KernelTable<GatedActivationArgs> gated_activation_cuda_kernels() { return kGatedKernels; }
KernelTable<ActivationArgs> activation_cuda_kernels() { return kPlainKernels; }

}  // namespace headrace
