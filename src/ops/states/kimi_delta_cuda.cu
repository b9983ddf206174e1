// kimi_delta on CUDA: a decay of each component of a key, gates of sigmoids (delta_block.cuh).
//   qkv, z, out [T, ...] f32, f16 or bf16; forget, beta f32
#include "ops/states/delta_block.cuh"
#include "ops/states/kimi_delta.h"

namespace headrace {
namespace {

static_assert(kKimiDeltaColumns == kDeltaColumns);  // states lie alike

struct ComponentGates {
  static constexpr bool kOfComponents = true;
  gpu::RowsOf<const float> forget;  // [T, columns]
  gpu::RowsOf<const float> learnt;  // [T, heads]: b
  const float* rate;
  const float* dt_bias;
  int32_t dim;
  float floor;  // KimiDeltaArgs::decay_floor

  __device__ __forceinline__ float beta(int32_t row, int32_t head) const {
    return gpu::delta_beta(learnt.row(row)[head]);
  }
  __device__ __forceinline__ float decay(int32_t row, int32_t head, int component) const {
    const int64_t at = int64_t{head} * dim + component;
    const float x = forget.row(row)[at] + dt_bias[at];
    if (floor < 0.0f) return expf(floor / (1.0f + expf(rate[head] * x)));
    return gpu::delta_decay(rate[head], x);
  }
};

void run(OpContext& context, const KimiDeltaArgs& args) {
  gpu::with_float_type(args.qkv.dtype, [&]<class T>(gpu::ElementType<T>) {
    const KimiDeltaHeads& heads = args.heads;
    gpu::launch_delta_states(
        context, gpu::DeltaArguments<T, ComponentGates>{
                     .heads = {.key_heads = heads.count,
                               .value_heads = heads.count,
                               .key_dim = heads.dim,
                               .value_dim = heads.dim},
                     .keys = heads.columns(),
                     .qkv = gpu::rows_of<T>(ConstTensorView(args.qkv)),
                     .gates = {.forget = gpu::rows_of<float>(ConstTensorView(args.forget)),
                               .learnt = gpu::rows_of<float>(ConstTensorView(args.beta)),
                               .rate = args.rate,
                               .dt_bias = args.dt_bias,
                               .dim = heads.dim,
                               .floor = args.decay_floor},
                     .states = args.states.base,
                     .state_stride = args.states.stride,
                     .sequences = args.states.on_device,
                     .out = gpu::rows_of<T>(args.out)});
    gpu::launch_delta_gates<gpu::DeltaGate::kSigmoid>(
        context, gpu::DeltaGateArguments<T>{.z = gpu::rows_of<T>(args.z),
                                            .out = gpu::rows_of<T>(args.out),
                                            .norm = args.norm,
                                            .heads = heads.count,
                                            .value_dim = heads.dim,
                                            .items = args.out.rows() * heads.count,
                                            .eps = args.norm_eps});
  });
}

bool heads_fit(const DeviceTraits& traits, const KimiDeltaArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.heads.dim <= gpu::kDeltaKeyDimMax;
}

constexpr std::array kKernels = {Kernel<KimiDeltaArgs>{"kimi_delta/cuda/rows", heads_fit, run}};

}  // namespace

KernelTable<KimiDeltaArgs> kimi_delta_cuda_kernels() { return kKernels; }

}  // namespace headrace
