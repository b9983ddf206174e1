// latent_kv on CUDA. A thread block a token norms the latent, rotates the key behind it and writes
// both to the cache; others rotate the last components of the heads' queries. Arithmetic in f32.
#include <array>

#include "gpu/reduce.cuh"
#include "ops/attention/latent_kv.h"
#include "ops/cuda_launch.cuh"

namespace headrace {
namespace {

constexpr int kThreads = 128;
constexpr int kQueriesOfBlock = 4 * kThreads;  // numbers

template <class T>
struct LatentKvArguments {
  gpu::RowsOf<const T> kv, q;
  gpu::RowsOf<const float> cos, sin;
  const float* norm;
  float eps;
  int32_t heads, latent, pairs, query_dim;
  T* cache;              // of block 0
  int64_t block_stride;  // elements
  int32_t block_tokens;
  const int64_t* slots;
  gpu::RowsOf<T> queries;
};

// Component i of 2 `pairs`, of which i and i + pairs are turned together.
template <class T>
__device__ __forceinline__ float rotated(const T* from, const float* cos, const float* sin,
                                         int32_t pairs, int32_t i) {
  const int32_t pair = i % pairs;
  const float low = gpu::to_float(from[pair]), high = gpu::to_float(from[pair + pairs]);
  return i < pairs ? low * cos[pair] - high * sin[pair] : high * cos[pair] + low * sin[pair];
}

template <class T>
__device__ void keep_latent(const LatentKvArguments<T>& args, int64_t token) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const T* const kv = args.kv.row(token);
  const float* const cos = args.cos.row(token);
  const float* const sin = args.sin.row(token);
  float squares = 0.0f;
  for (int32_t i = thread; i < args.latent; i += kThreads) {
    const float value = gpu::to_float(kv[i]);
    squares = fmaf(value, value, squares);
  }
  squares = gpu::block_sum<kThreads>(squares);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.latent) + args.eps);
  const int64_t slot = args.slots[token];
  T* const key = args.cache + slot / args.block_tokens * args.block_stride +
                 slot % args.block_tokens * (args.latent + 2 * args.pairs);
  for (int32_t i = thread; i < args.latent; i += kThreads) {
    key[i] = gpu::from_float<T>(gpu::to_float(kv[i]) * scale * args.norm[i]);
  }
  for (int32_t i = thread; i < 2 * args.pairs; i += kThreads) {
    key[args.latent + i] = gpu::from_float<T>(rotated(kv + args.latent, cos, sin, args.pairs, i));
  }
}

// blockIdx: token; 0, or one more than a number of parts of the queries.
template <class T>
__global__ void __launch_bounds__(kThreads)
    keep_latents(const __grid_constant__ LatentKvArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto token = static_cast<int64_t>(blockIdx.x);
  if (blockIdx.y == 0) return keep_latent(args, token);
  const int32_t width = 2 * args.pairs;
  const auto first = static_cast<int32_t>(blockIdx.y - 1) * kQueriesOfBlock;
  const int32_t last = min(args.heads * width, first + kQueriesOfBlock);
  for (int32_t n = first + static_cast<int32_t>(threadIdx.x); n < last; n += kThreads) {
    const int32_t head = n / width, i = n % width;
    const T* const from = args.q.row(token) + (head + 1) * args.query_dim - width;
    T* const to = args.queries.row(token) + head * (args.latent + width) + args.latent;
    to[i] =
        gpu::from_float<T>(rotated(from, args.cos.row(token), args.sin.row(token), args.pairs, i));
  }
}

void run(OpContext& context, const LatentKvArgs& args) {
  gpu::with_float_type(args.kv.dtype, [&]<class T>(gpu::ElementType<T>) {
    const KvLayerView& cache = args.cache;
    const dim3 blocks(
        static_cast<unsigned>(args.kv.rows()),
        1 + gpu::blocks_for(args.heads * (cache.k_dim - cache.v_dim), kQueriesOfBlock));
    gpu::launch(
        context, keep_latents<T>, blocks, kThreads,
        LatentKvArguments<T>{.kv = gpu::rows_of<T>(args.kv),
                             .q = gpu::rows_of<T>(args.q),
                             .cos = gpu::rows_of<float>(args.cos),
                             .sin = gpu::rows_of<float>(args.sin),
                             .norm = args.norm,
                             .eps = args.norm_eps,
                             .heads = args.heads,
                             .latent = cache.v_dim,
                             .pairs = (cache.k_dim - cache.v_dim) / 2,
                             .query_dim = static_cast<int32_t>(args.q.columns() / args.heads),
                             .cache = reinterpret_cast<T*>(cache.base),
                             .block_stride = cache.block_stride / static_cast<int64_t>(sizeof(T)),
                             .block_tokens = cache.block_tokens,
                             .slots = args.slots.data(),
                             .queries = gpu::rows_of<T>(args.queries)});
  });
}

bool plain_rows(const DeviceTraits& traits, const LatentKvArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.cache.keys == KeyLayout::kRows &&
         !has_scales(args.cache.k_format) && kv_element(args.cache.k_format) == args.kv.dtype;
}

constexpr std::array kKernels = {Kernel<LatentKvArgs>{"latent_kv/cuda/rows", plain_rows, run}};

}  // namespace

KernelTable<LatentKvArgs> latent_kv_cuda_kernels() { return kKernels; }

}  // namespace headrace
