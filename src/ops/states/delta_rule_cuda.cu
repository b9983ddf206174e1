// delta_rule on CUDA: a decay of each value head, gates of SiLU or sigmoids (delta_block.cuh).
//   qkv, z, out [T, ...] f32, f16 or bf16; gates [T, 2 value_heads] f32
#include "ops/states/delta_block.cuh"
#include "ops/states/delta_rule.h"

namespace headrace {
namespace {

struct HeadGates {
  static constexpr bool kOfComponents = false;
  gpu::RowsOf<const float> gates;  // [T, 2 value_heads]: b, a
  const float* rate;
  const float* dt_bias;
  int32_t value_heads;
  float beta_scale;

  __device__ __forceinline__ float beta(int32_t row, int32_t head) const {
    return beta_scale * gpu::delta_beta(gates.row(row)[head]);
  }
  __device__ __forceinline__ float decay(int32_t row, int32_t head, int /*component*/) const {
    return gpu::delta_decay(rate[head], gates.row(row)[value_heads + head] + dt_bias[head]);
  }
};

void run(OpContext& context, const DeltaRuleArgs& args) {
  gpu::with_float_type(args.qkv.dtype, [&]<class T>(gpu::ElementType<T>) {
    const DeltaHeads& heads = args.heads;
    gpu::launch_delta_states(
        context, gpu::DeltaArguments<T, HeadGates>{
                     .heads = heads,
                     .keys = heads.keys(),
                     .qkv = gpu::rows_of<T>(ConstTensorView(args.qkv)),
                     .gates = {.gates = gpu::rows_of<float>(ConstTensorView(args.gates)),
                               .rate = args.rate,
                               .dt_bias = args.dt_bias,
                               .value_heads = heads.value_heads,
                               .beta_scale = args.beta_scale},
                     .states = args.states.base,
                     .state_stride = args.states.stride,
                     .sequences = args.states.on_device,
                     .out = gpu::rows_of<T>(args.out)});
    const gpu::DeltaGateArguments<T> gates{.z = gpu::rows_of<T>(args.z),
                                           .out = gpu::rows_of<T>(args.out),
                                           .norm = args.norm,
                                           .heads = heads.value_heads,
                                           .value_dim = heads.value_dim,
                                           .items = args.out.rows() * heads.value_heads,
                                           .eps = args.norm_eps};
    if (args.sigmoid_gates) {
      gpu::launch_delta_gates<gpu::DeltaGate::kSigmoid>(context, gates);
    } else {
      gpu::launch_delta_gates<gpu::DeltaGate::kSilu>(context, gates);
    }
  });
}

bool keys_fit(const DeviceTraits& traits, const DeltaRuleArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.heads.key_dim <= gpu::kDeltaKeyDimMax;
}

constexpr std::array kKernels = {Kernel<DeltaRuleArgs>{"delta_rule/cuda/rows", keys_fit, run}};

}  // namespace

KernelTable<DeltaRuleArgs> delta_rule_cuda_kernels() { return kKernels; }

}  // namespace headrace
