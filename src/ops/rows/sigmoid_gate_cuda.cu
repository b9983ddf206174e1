// sigmoid_gate on CUDA, in place: a thread an element of f32, f16 or bf16.
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/sigmoid_gate.h"

namespace headrace {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    gate_rows(gpu::RowsOf<T> x, gpu::RowsOf<const T> gates, GateKind kind, int64_t columns,
              int64_t of_gate, int64_t elements) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= elements) return;
  T& value = x.row(i / columns)[i % columns];
  const float gate = gpu::to_float(gates.row(i / columns)[i % columns / of_gate]);
  const float factor = kind == GateKind::kSigmoid
                           ? 1.0f / (1.0f + __expf(-gate))
                           : fmaxf(gate, 0.0f) + log1pf(__expf(-fabsf(gate)));
  value = gpu::from_float<T>(gpu::to_float(value) * factor);
}

void run(OpContext& context, const SigmoidGateArgs& args) {
  const int64_t elements = args.x.rows() * args.x.columns();
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    gpu::launch(context, gate_rows<T>, gpu::blocks_for(elements, kThreads), kThreads,
                gpu::rows_of<T>(args.x), gpu::rows_of<T>(args.gate), args.kind, args.x.columns(),
                args.columns_of_gate(), elements);
  });
}

bool any(const DeviceTraits& traits, const SigmoidGateArgs&) {
  return traits.kind == DeviceKind::kCuda;
}

constexpr std::array kKernels = {Kernel<SigmoidGateArgs>{"sigmoid_gate/cuda/any", any, run}};

}  // namespace

KernelTable<SigmoidGateArgs> sigmoid_gate_cuda_kernels() { return kKernels; }

}  // namespace headrace
