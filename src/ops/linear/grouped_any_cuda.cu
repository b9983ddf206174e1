// grouped_linear for types and shapes that the tiles do not take: a warp an element of y.
#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/grouped.h"
#include "ops/linear/grouped_layout.h"
#include "ops/rows/activation_cuda.cuh"

namespace headrace {
namespace {

constexpr int kGroupedAnyWarps = 4;

template <class T>
struct GroupedAnyArguments {
  gpu::RowsOf<const T> x;
  const T* weight;  // [E N, K]
  const int32_t* rows;
  const int32_t* starts;
  const float* bias;  // [E N] or null
  gpu::RowsOf<T> y;
  int64_t listed;
  int32_t experts, n, n_out, k;
  Activation activation;
};

template <class T>
__device__ float grouped_sum(const T* x, const T* weight, int32_t k, int lane) {
  float sum = 0.0f;
  for (int32_t i = lane; i < k; i += gpu::kWarpThreads) {
    sum = fmaf(gpu::to_float(x[i]), gpu::to_float(weight[i]), sum);
  }
  return gpu::warp_sum(sum);
}

template <class T>
__global__ void __launch_bounds__(kGroupedAnyWarps* gpu::kWarpThreads)
    any_grouped_element(GroupedAnyArguments<T> args) {
  gpu::wait_for_earlier_kernels();
  gpu::let_next_kernel_start();  // not sooner: it may read `starts` at once (follows_another)
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int64_t element = static_cast<int64_t>(blockIdx.x) * kGroupedAnyWarps +
                          static_cast<int64_t>(threadIdx.x) / gpu::kWarpThreads;
  if (element >= args.listed * args.n_out) return;
  const int64_t listed = element / args.n_out;
  const auto column = static_cast<int32_t>(element % args.n_out);
  if (listed < args.starts[0] || listed >= args.starts[args.experts]) return;  // of others
  const int32_t expert = expert_of_tile(args.starts, args.experts, static_cast<int32_t>(listed));
  const T* x = args.x.row(args.rows == nullptr ? listed : args.rows[listed]);
  const int64_t first = int64_t{expert} * args.n + column;  // row of W
  const auto bias = [&](int64_t row) { return args.bias == nullptr ? 0.0f : args.bias[row]; };
  const T* weight = args.weight + first * args.k;
  float value = grouped_sum(x, weight, args.k, lane) + bias(first);
  if (args.n_out < args.n) {
    const float up = grouped_sum(x, weight + int64_t{args.n_out} * args.k, args.k, lane) +
                     bias(first + args.n_out);
    value = gpu::activated(args.activation, value) * gpu::gated_up(args.activation, up);
  }
  if (lane == 0) args.y.row(listed)[column] = gpu::from_float<T>(value);
}

}  // namespace

bool grouped_any_fits(const DeviceTraits& traits, const GroupedLinearArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.weight->is_matrix_of(args.x.dtype) &&
         args.gate != Activation::kTanh && args.gate != Activation::kSigmoid &&
         args.y.rows() <= int64_t{INT32_MAX} * kGroupedAnyWarps / args.y.columns();
}

void run_grouped_any(OpContext& context, const GroupedLinearArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    const GroupedAnyArguments<T> arguments{
        .x = gpu::rows_of<T>(args.x),
        .weight = reinterpret_cast<const T*>(args.weight->matrix().data),
        .rows = args.rows.empty() ? nullptr : args.rows.data(),
        .starts = args.starts.data(),
        .bias = args.bias,
        .y = gpu::rows_of<T>(args.y),
        .listed = args.y.rows(),
        .experts = static_cast<int32_t>(args.experts()),
        .n = static_cast<int32_t>(args.expert_rows()),
        .n_out = static_cast<int32_t>(args.y.columns()),
        .k = static_cast<int32_t>(args.x.columns()),
        .activation = args.gate.value_or(Activation::kSilu)};
    gpu::launch(context, any_grouped_element<T>,
                gpu::blocks_for(arguments.listed * arguments.n_out, kGroupedAnyWarps),
                kGroupedAnyWarps * gpu::kWarpThreads, arguments);
  });
}

}  // namespace headrace
