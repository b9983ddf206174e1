// index_keys on CUDA. A thread block a token norms its key, rotates the front and writes it to the
// cache; others rotate the fronts of the heads' queries. Arithmetic in f32.
#include <array>

#include "gpu/reduce.cuh"
#include "ops/attention/index_keys.h"
#include "ops/cuda_launch.cuh"

namespace headrace {
namespace {

constexpr int kThreads = 128;
constexpr int kPairsOfBlock = 4 * kThreads;

template <class T>
struct IndexKeysArguments {
  gpu::RowsOf<const float> keys, cos, sin;
  const float* norm;
  const float* norm_bias;
  float eps;
  int32_t heads, dim, pairs;
  gpu::RowsOf<T> queries;
  std::byte* cache;      // index part of block 0
  int64_t block_stride;  // bytes
  int32_t block_tokens;
  const int64_t* slots;
};

// What a thread block knows of its token's key.
struct NormedKey {
  const float* key;
  const float* weight;
  const float* bias;
  float mean, scale;

  __device__ __forceinline__ float operator[](int32_t d) const {
    return (key[d] - mean) * scale * weight[d] + bias[d];
  }
  // Component d, of which the first 2 `pairs` are rotated.
  __device__ __forceinline__ float rotated(int32_t d, int32_t pairs, const float* cos,
                                           const float* sin) const {
    if (d >= 2 * pairs) return (*this)[d];
    const int32_t pair = d % pairs;
    const float low = (*this)[pair], high = (*this)[pair + pairs];
    return d < pairs ? low * cos[pair] - high * sin[pair] : high * cos[pair] + low * sin[pair];
  }
};

template <class T>
__device__ NormedKey normed_key(const IndexKeysArguments<T>& args, int64_t token) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const float* const key = args.keys.row(token);
  const auto dim = static_cast<float>(args.dim);
  float sum = 0.0f, squares = 0.0f;
  for (int32_t d = thread; d < args.dim; d += kThreads) sum += key[d];
  const float mean = gpu::block_sum<kThreads>(sum) / dim;
  __syncthreads();
  for (int32_t d = thread; d < args.dim; d += kThreads) {
    squares = fmaf(key[d] - mean, key[d] - mean, squares);
  }
  squares = gpu::block_sum<kThreads>(squares);
  return {key, args.norm, args.norm_bias, mean, 1.0f / sqrtf(squares / dim + args.eps)};
}

// [component][token] of the token's block.
template <class Kept, class T>
__device__ void keep_key(const IndexKeysArguments<T>& args, int64_t token) {
  const NormedKey key = normed_key(args, token);
  const int64_t slot = args.slots[token];
  auto* const kept =
      reinterpret_cast<Kept*>(args.cache + slot / args.block_tokens * args.block_stride) +
      slot % args.block_tokens;
  for (auto d = static_cast<int32_t>(threadIdx.x); d < args.dim; d += kThreads) {
    kept[int64_t{d} * args.block_tokens] =
        gpu::from_float<Kept>(key.rotated(d, args.pairs, args.cos.row(token), args.sin.row(token)));
  }
}

// blockIdx: token; 0, or one more than a number of parts of the queries.
template <class Kept, class T>
__global__ void __launch_bounds__(kThreads)
    keep_index_keys(const __grid_constant__ IndexKeysArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto token = static_cast<int64_t>(blockIdx.x);
  if (blockIdx.y == 0) return keep_key<Kept>(args, token);
  const auto first = static_cast<int32_t>(blockIdx.y - 1) * kPairsOfBlock;
  const int32_t last = min(args.heads * args.pairs, first + kPairsOfBlock);
  const float* const cos = args.cos.row(token);
  const float* const sin = args.sin.row(token);
  for (int32_t n = first + static_cast<int32_t>(threadIdx.x); n < last; n += kThreads) {
    const int32_t pair = n % args.pairs;
    T* const head = args.queries.row(token) + int64_t{n / args.pairs} * args.dim;
    const float low = gpu::to_float(head[pair]), high = gpu::to_float(head[pair + args.pairs]);
    head[pair] = gpu::from_float<T>(low * cos[pair] - high * sin[pair]);
    head[pair + args.pairs] = gpu::from_float<T>(high * cos[pair] + low * sin[pair]);
  }
}

void run(OpContext& context, const IndexKeysArgs& args) {
  gpu::with_float_type(args.queries.dtype, [&]<class T>(gpu::ElementType<T>) {
    const KvLayerView& cache = args.cache;
    const auto heads = static_cast<int32_t>(args.queries.columns() / cache.index_dim);
    const auto pairs = static_cast<int32_t>(args.cos.columns());
    const dim3 blocks(static_cast<unsigned>(args.keys.rows()),
                      1 + gpu::blocks_for(int64_t{heads} * pairs, kPairsOfBlock));
    const bool half = index_format(cache) == KvFormat::kF16;
    gpu::launch(context, half ? keep_index_keys<__half, T> : keep_index_keys<float, T>, blocks,
                kThreads,
                IndexKeysArguments<T>{.keys = gpu::rows_of<float>(args.keys),
                                      .cos = gpu::rows_of<float>(args.cos),
                                      .sin = gpu::rows_of<float>(args.sin),
                                      .norm = args.norm,
                                      .norm_bias = args.norm_bias,
                                      .eps = args.norm_eps,
                                      .heads = heads,
                                      .dim = cache.index_dim,
                                      .pairs = pairs,
                                      .queries = gpu::rows_of<T>(args.queries),
                                      .cache = cache.base + cache.index_offset,
                                      .block_stride = cache.block_stride,
                                      .block_tokens = cache.block_tokens,
                                      .slots = args.slots.data()});
  });
}

bool any(const DeviceTraits& traits, const IndexKeysArgs&) {
  return traits.kind == DeviceKind::kCuda;
}

constexpr std::array kKernels = {Kernel<IndexKeysArgs>{"index_keys/cuda/rows", any, run}};

}  // namespace

KernelTable<IndexKeysArgs> index_keys_cuda_kernels() { return kKernels; }

}  // namespace headrace
