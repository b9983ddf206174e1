// Attention on CUDA: the table of kernels, best first, and the reference among them.
#include <array>

#include "gpu/reduce.cuh"
#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/page_numbers.cuh"

namespace headrace {

void attention_cuda_d64(OpContext& context, const AttentionArgs& args);  // cuda_d64.cu
void attention_cuda_d80(OpContext& context, const AttentionArgs& args);
void attention_cuda_d96(OpContext& context, const AttentionArgs& args);
void attention_cuda_d128(OpContext& context, const AttentionArgs& args);
void attention_cuda_d256(OpContext& context, const AttentionArgs& args);
void attention_cuda_d512(OpContext& context, const AttentionArgs& args);
void attention_cuda_d192_128(OpContext& context, const AttentionArgs& args);
void attention_cuda_alibi_d64(OpContext& context, const AttentionArgs& args);
void attention_cuda_alibi_d80(OpContext& context, const AttentionArgs& args);
void attention_cuda_alibi_d96(OpContext& context, const AttentionArgs& args);
void attention_cuda_alibi_d128(OpContext& context, const AttentionArgs& args);
void attention_cuda_latents(OpContext& context, const AttentionArgs& args);
bool latent_attention_fits(const DeviceTraits& traits, const AttentionArgs& args);

namespace {

constexpr int kThreads = 128;
constexpr int kHeadDimMax = 640;
constexpr int kDimsPerThread = kHeadDimMax / kThreads;

// The largest of the threads' values, on every thread.
__device__ float block_max(float value) {
  __shared__ float partial[kThreads / gpu::kWarpThreads];
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  if (threadIdx.x % gpu::kWarpThreads == 0) partial[threadIdx.x / gpu::kWarpThreads] = value;
  __syncthreads();
  value = partial[0];
  for (int i = 1; i < kThreads / gpu::kWarpThreads; ++i) value = fmaxf(value, partial[i]);
  __syncthreads();
  return value;
}

// A key or value of a head: elements of T, or in columns.
template <class T>
struct PlainNumbers {
  const T* numbers;

  // `part`: the K or V part of block 0, whose heads have `dim` components.
  __device__ static PlainNumbers of(const gpu::AttentionArguments<T>& args, const T* part,
                                    int32_t dim, const int32_t* block_table, int32_t position,
                                    int32_t head) {
    return {part + args.token_offset(block_table, position, head, dim)};
  }
  __device__ float operator[](int32_t d) const { return gpu::to_float(numbers[d]); }
};
template <class T, gpu::PageNumbers kNumbers>
struct NumbersInColumns {
  using Numbers = gpu::ColumnNumbers<kNumbers>;

  const std::byte* head;  // of the block
  int32_t dim, block_tokens, token;

  __device__ static NumbersInColumns of(const gpu::AttentionArguments<T>& args, const T* part,
                                        int32_t dim, const int32_t* block_table, int32_t position,
                                        int32_t head) {
    const T* block = part + block_table[position / args.block_tokens] * args.block_stride;
    return {reinterpret_cast<const std::byte*>(block) +
                head * Numbers::head_bytes(dim, args.block_tokens),
            dim, args.block_tokens, position % args.block_tokens};
  }
  __device__ float operator[](int32_t d) const {
    float numbers[Numbers::kWordNumbers];
    if constexpr (kNumbers == gpu::PageNumbers::kInt4) {
      const int64_t at = Numbers::word_place(dim, block_tokens, token, d);
      Numbers::load_word(static_cast<uint32_t>(head[at]) >> d % 2 * 4, numbers);
    } else {
      const int64_t at = column_place(dim, block_tokens, token, d);
      Numbers::load_word(static_cast<uint32_t>(head[at]), numbers);
    }
    if constexpr (!Numbers::kScaled) return numbers[0];
    return numbers[0] * gpu::to_float(Numbers::scales(head, dim, block_tokens)[token]);
  }
};

// One row and query head by a thread block: 128 keys at a time, a thread a key, then a thread a
// component. f32 arithmetic.
template <class Numbers, class T>
__device__ void attend_row(const gpu::AlibiArguments<T>& args, const AttentionTileWork& tile,
                           int32_t r, int32_t head) {
  __shared__ float q[kHeadDimMax];
  __shared__ float weights[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t kv_head = head / args.group;
  const int32_t position = tile.position + r;
  const int64_t at = static_cast<int64_t>(head) * args.head_dim;
  const int64_t out_at = static_cast<int64_t>(head) * args.value_dim;
  const int32_t value_step = args.value_step();
  __syncthreads();
  for (int d = thread; d < args.head_dim; d += kThreads) {
    q[d] = gpu::to_float(args.q.row(tile.row_first + r)[at + d]);
  }
  __syncthreads();
  float largest = args.sinks != nullptr ? args.sinks[head] : -INFINITY;
  float total = args.sinks != nullptr ? 1.0f : 0.0f;
  float sums[kDimsPerThread] = {};
  for (int32_t from = args.first_key(position); from <= position; from += kThreads) {
    const int32_t key = from + thread;
    float score = -INFINITY;
    if (key <= position) {
      const auto k = Numbers::of(args, args.keys, args.head_dim, tile.block_table, key, kv_head);
      score = 0.0f;
      for (int d = 0; d < args.head_dim; ++d) score += q[d] * k[d];
      score *= args.scale;
      if (args.soft_cap > 0) score = args.soft_cap * tanhf(score / args.soft_cap);
      if (args.slopes != nullptr) score -= args.slopes[head] * static_cast<float>(position - key);
    }
    const float grown = fmaxf(largest, block_max(score));
    const float keep = expf(largest - grown);
    largest = grown;
    weights[thread] = expf(score - largest);
    __syncthreads();
    total = total * keep + gpu::block_sum<kThreads>(weights[thread]);
    const int32_t count = min(kThreads, position + 1 - from);
    for (int i = 0; i < kDimsPerThread; ++i) sums[i] *= keep;
    for (int32_t j = 0; j < count; ++j) {
      const auto v =
          Numbers::of(args, args.values, value_step, tile.block_table, from + j, kv_head);
      for (int i = 0; i < kDimsPerThread; ++i) {
        const int d = thread + i * kThreads;
        if (d < args.value_dim) sums[i] += weights[j] * v[d];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kDimsPerThread; ++i) {
    const int d = thread + i * kThreads;
    if (d < args.value_dim) {
      args.out.row(tile.row_first + r)[out_at + d] = gpu::from_float<T>(sums[i] / total);
    }
  }
}

// blockIdx.y is the query head. Only the first split of split rows is looked at.
template <class Numbers, class T>
__global__ void __launch_bounds__(kThreads)
    attention_reference(gpu::AlibiArguments<T> args, bool decode, int32_t rows) {
  const AttentionPlanHeader& header = args.header();
  const int32_t count = decode ? header.decode_count : header.prefill_count;
  const AttentionTileWork* tiles = decode ? args.decode_tiles() : args.prefill_tiles();
  for (int32_t i = static_cast<int32_t>(blockIdx.x); i < count; i += gridDim.x) {
    const AttentionTileWork tile = tiles[i];
    if (tile.split > 0) continue;
    for (int32_t r = 0; r < tile.row_count; ++r) {
      attend_row<Numbers>(args, tile, r, static_cast<int32_t>(blockIdx.y));
    }
  }
  for (int32_t row = header.row_count + static_cast<int32_t>(blockIdx.x); row < rows;
       row += gridDim.x) {
    T* const out = args.out.row(row) + static_cast<int64_t>(blockIdx.y) * args.value_dim;
    for (int d = static_cast<int>(threadIdx.x); d < args.value_dim; d += kThreads) {
      out[d] = gpu::from_float<T>(0.0f);
    }
  }
}

template <class Numbers, class T>
void run_reference_of(OpContext& context, const AttentionArgs& args) {
  const gpu::AlibiArguments<T> arguments{gpu::attention_arguments<T>(args, nullptr, nullptr),
                                         args.slopes};
  const dim3 grid(static_cast<unsigned>(4 * args.plan->shape.sm_count),
                  static_cast<unsigned>(arguments.group * arguments.kv_heads));
  const cudaStream_t stream = gpu::stream_of(context);
  const auto launch = [&](bool decode) {
    attention_reference<Numbers, T>
        <<<grid, kThreads, 0, stream>>>(arguments, decode, static_cast<int32_t>(args.out.rows()));
    gpu::check_launch(context.stream, cudaGetLastError());
  };
  if (args.plan->has_prefill) launch(false);
  if (args.plan->has_decode) launch(true);
}

void run_reference(OpContext& context, const AttentionArgs& args) {
  gpu::with_float_type(args.q.dtype, [&]<class T>(gpu::ElementType<T>) {
    gpu::with_page_numbers(args.kv, [&](auto numbers) {
      if constexpr (numbers.value == gpu::PageNumbers::kPlain) {
        run_reference_of<PlainNumbers<T>, T>(context, args);
      } else {
        run_reference_of<NumbersInColumns<T, numbers.value>, T>(context, args);
      }
    });
  });
}

// Values that are parts of keys, plain elements of this type.
bool plain_latents(const KvLayerView& kv, DType dtype) {
  return kv.v_aliases_k && !has_scales(kv.k_format) && kv_element(kv.k_format) == dtype;
}

bool any(const DeviceTraits& traits, const AttentionArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.plan != nullptr &&
         args.kv.keys == KeyLayout::kRows && args.kv.k_dim <= kHeadDimMax &&
         args.kv.v_dim <= kHeadDimMax &&
         (all_plain(args.kv, args.q.dtype) || alike_in_columns(args.kv) ||
          plain_latents(args.kv, args.q.dtype));
}

// The copy engine and the tensor cores: 16-bit types or columns; rows and pages on 16 bytes.
template <class Heads>
bool on_tensor_cores(const DeviceTraits& traits, const AttentionArgs& args) {
  const KvLayerView& kv = args.kv;
  return any(traits, args) && traits.compute_capability == 90 && kv.k_dim == Heads::kDim &&
         kv.v_dim == Heads::kValueDim && (args.slopes != nullptr) == Heads::kAlibi &&
         !kv.v_aliases_k && args.q.dtype != DType::kF32 && kv.block_tokens == 16 &&
         (!has_4_bits(kv.k_format) || Heads::kDim % kKvColumnOf4Bits == 0) &&
         gpu::rows_aligned(args.q) && gpu::rows_aligned(args.out) &&
         gpu::multiple_of_access(kv.base) && gpu::multiple_of_access(kv.unpacked) &&
         kv.block_stride % gpu::kAccessBytes == 0 && kv.v_offset % gpu::kAccessBytes == 0;
}
int64_t group_of(const AttentionArgs& args) {
  return args.q.columns() / args.kv.k_dim / args.kv.kv_heads;
}

// Prefill tiles read columns where they are unpacked.
template <class Heads>
bool fast_heads(const DeviceTraits& traits, const AttentionArgs& args) {
  return on_tensor_cores<Heads>(traits, args) &&
         (!lies_in_columns(args.kv.k_format) || args.kv.unpacked != nullptr) &&
         group_of(args) <= prefill_tile_rows(Heads::kDim);
}
template <int32_t kDim>
bool fast(const DeviceTraits& traits, const AttentionArgs& args) {
  return fast_heads<gpu::HeadShape<kDim>>(traits, args);
}

// With ALiBi there is decode of 8 rows alone, and no soft cap.
template <int32_t kDim>
bool fast_alibi(const DeviceTraits& traits, const AttentionArgs& args) {
  return fast_heads<gpu::HeadShape<kDim, kDim, /*kHasSlopes=*/true>>(traits, args) &&
         args.soft_cap == 0 && group_of(args) <= 8;
}

// A position's heads are no more than the rows of a tile of decode.
bool fast_512(const DeviceTraits& traits, const AttentionArgs& args) {
  return on_tensor_cores<gpu::HeadShape<512>>(traits, args) && group_of(args) <= 8;
}

constexpr std::array kKernels = {
    Kernel<AttentionArgs>{"attention/cuda/d64", fast<64>, attention_cuda_d64},
    Kernel<AttentionArgs>{"attention/cuda/d80", fast<80>, attention_cuda_d80},
    Kernel<AttentionArgs>{"attention/cuda/d96", fast<96>, attention_cuda_d96},
    Kernel<AttentionArgs>{"attention/cuda/d128", fast<128>, attention_cuda_d128},
    Kernel<AttentionArgs>{"attention/cuda/d256", fast<256>, attention_cuda_d256},
    Kernel<AttentionArgs>{"attention/cuda/d512", fast_512, attention_cuda_d512},
    Kernel<AttentionArgs>{"attention/cuda/d192_128", fast_heads<gpu::HeadShape<192, 128>>,
                          attention_cuda_d192_128},
    Kernel<AttentionArgs>{"attention/cuda/alibi_d64", fast_alibi<64>, attention_cuda_alibi_d64},
    Kernel<AttentionArgs>{"attention/cuda/alibi_d80", fast_alibi<80>, attention_cuda_alibi_d80},
    Kernel<AttentionArgs>{"attention/cuda/alibi_d96", fast_alibi<96>, attention_cuda_alibi_d96},
    Kernel<AttentionArgs>{"attention/cuda/alibi_d128", fast_alibi<128>, attention_cuda_alibi_d128},
    Kernel<AttentionArgs>{"attention/cuda/latents", latent_attention_fits, attention_cuda_latents},
    Kernel<AttentionArgs>{.name = "attention/cuda/reference",
                          .supports = any,
                          .run = run_reference,
                          .is_fallback = true},
};

}  // namespace

KernelTable<AttentionArgs> attention_cuda_kernels() { return kKernels; }

}  // namespace headrace
