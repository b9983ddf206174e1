// Rotation of q and k heads and the write of k and v into the paged cache on CUDA.
//   qkv [T, (Hq + Hkv) d + Hkv v_dim] f32, f16 or bf16, in place;  cos, sin [T, rope_dim / 2] f32
//   cache [head][token][d or v_dim] in a block, of qkv's type, or in columns (page_numbers.cuh)
// A warp takes one head of one token: it loads the head, norms it if asked, keeps it in shared
// memory as f32 (a rotation pairs elements that different lanes hold), and stores it rotated. A
// head of v is only copied. Limits: d <= kHeadDimMax, d and v_dim multiples of 4 for the wide
// kernel, and alike for those of lanes and for columns.
#include <array>

#include "gpu/reduce.cuh"
#include "ops/attention/page_numbers.cuh"
#include "ops/attention/rope_kv.h"
#include "ops/attention/rope_kv_lanes.cuh"
#include "ops/cuda_launch.cuh"

namespace headrace {
namespace {

using gpu::HeadScale;
using gpu::PageNumbers;

constexpr int kWarps = 4;
constexpr int kHeadDimMax = 512;

template <class T>
struct Arguments {
  gpu::RowsOf<T> qkv;
  gpu::RowsOf<const float> cos, sin;
  const int64_t* slots;  // [T]
  const float* q_norm;   // [d] or null
  const float* k_norm;
  float norm_eps;
  std::byte* cache;      // K part of block 0
  int64_t block_stride;  // bytes
  int64_t v_offset;      // bytes
  int32_t block_tokens;
  int32_t query_heads, kv_heads, head_dim;
  int32_t half;       // rope_dim / 2
  int32_t value_dim;  // of a head of values
};

// Where the key or value of a head goes: elements of T, or in columns.
template <class T, PageNumbers kNumbers>
struct CachedToken {
  std::byte* head;  // of its block
  int32_t dim, block_tokens, token;

  // `part`: bytes to the K or V part, whose heads have `dim` components.
  __device__ static CachedToken of(const Arguments<T>& args, int64_t slot, int32_t head,
                                   int64_t part, int32_t dim) {
    const int64_t block = slot / args.block_tokens;
    int64_t bytes;
    if constexpr (kNumbers == PageNumbers::kPlain) {
      bytes = int64_t{args.block_tokens} * dim * static_cast<int64_t>(sizeof(T));
    } else {
      bytes = gpu::ColumnNumbers<kNumbers>::head_bytes(dim, args.block_tokens);
    }
    return {args.cache + block * args.block_stride + part + head * bytes, dim, args.block_tokens,
            static_cast<int32_t>(slot % args.block_tokens)};
  }
  // Components [d, d + kWidth), of 4 bits a multiple of 8; d is a multiple of kWidth. `scale`: the
  // head's, of integers.
  template <int kWidth>
  __device__ void store(const gpu::Vector<T, kWidth>& numbers, int32_t d,
                        const HeadScale& scale) const {
    if constexpr (kNumbers == PageNumbers::kPlain) {
      numbers.store(reinterpret_cast<T*>(head) + int64_t{token} * dim + d);
    } else if constexpr (kNumbers == PageNumbers::kInt4) {
      static_assert(kWidth == 8);
      uint32_t word = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        word |= scale.half_byte_of(gpu::to_float(numbers.values[i])) << 4 * i;
      }
      using Numbers = gpu::ColumnNumbers<kNumbers>;
      *reinterpret_cast<uint32_t*>(head + Numbers::word_place(dim, block_tokens, token, d)) = word;
    } else if constexpr (kWidth == 1) {
      const uint32_t four = bytes_of(gpu::to_float(numbers.values[0]), 0.0f, 0.0f, 0.0f, scale);
      head[column_place(dim, block_tokens, token, d)] = static_cast<std::byte>(four);
    } else {
      gpu::Vector<uint32_t, kWidth / 4> words;
#pragma unroll
      for (int i = 0; i < kWidth / 4; ++i) {
        const T* four = numbers.values + 4 * i;
        words.values[i] = bytes_of(gpu::to_float(four[0]), gpu::to_float(four[1]),
                                   gpu::to_float(four[2]), gpu::to_float(four[3]), scale);
      }
      words.store(reinterpret_cast<uint32_t*>(head + column_place(dim, block_tokens, token, d)));
    }
  }
  // One thread.
  __device__ void store_scale(const HeadScale& scale) const {
    gpu::ColumnNumbers<kNumbers>::scales(head, dim, block_tokens)[token] = scale.scale;
  }

 private:
  // Four numbers, the first in the lowest byte.
  __device__ static uint32_t bytes_of(float a, float b, float c, float d, const HeadScale& scale) {
    if constexpr (kNumbers == PageNumbers::kFp8) return gpu::to_e4m3(a, b, c, d);
    return scale.byte_of(a) | scale.byte_of(b) << 8 | scale.byte_of(c) << 16 |
           scale.byte_of(d) << 24;
  }
};

// The largest magnitude of some elements, as bits, and of a group of kLanes lanes. All lanes.
template <class T, int kWidth>
__device__ uint32_t largest_magnitude(const gpu::Vector<T, kWidth>& numbers, uint32_t before) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    before = max(before, HeadScale::magnitude(gpu::to_float(numbers.values[i])));
  }
  return before;
}
template <int kLanes>
__device__ uint32_t largest_of_lanes(uint32_t largest) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  return largest;
}

template <PageNumbers kNumbers>
constexpr bool kIsScaled = kNumbers == PageNumbers::kInt8 || kNumbers == PageNumbers::kInt4;

// A head in `from`, of which a lane reads what it has written itself or nobody writes (of 4 bits,
// what the warp has written), goes to the cache. All lanes of a warp.
template <int kWidth, class T, PageNumbers kNumbers>
__device__ void keep_head(const T* from, int lane, const CachedToken<T, kNumbers>& to) {
  constexpr int kStep = gpu::kWarpThreads * kWidth;
  using Elements = gpu::Vector<T, kWidth>;
  HeadScale scale{};
  if constexpr (kIsScaled<kNumbers>) {
    uint32_t largest = 0;
    for (int d = lane * kWidth; d < to.dim; d += kStep) {
      largest = largest_magnitude(Elements::load(from + d), largest);
    }
    scale = HeadScale::of<kNumbers>(largest_of_lanes<gpu::kWarpThreads>(largest));
    if (lane == 0) to.store_scale(scale);
  }
  if constexpr (kNumbers == PageNumbers::kInt4) {
    __syncwarp();
    for (int d = lane * 8; d < to.dim; d += 8 * gpu::kWarpThreads) {
      gpu::Vector<T, 8> elements;
#pragma unroll
      for (int i = 0; i < 8; ++i) elements.values[i] = from[d + i];
      to.store(elements, d, scale);
    }
  } else {
    for (int d = lane * kWidth; d < to.dim; d += kStep) {
      to.store(Elements::load(from + d), d, scale);
    }
  }
}

// mix_head() (kv_numbers.h) of a head in shared memory. All lanes of a warp.
__device__ void mix_shared_head(float* head, int32_t dim, int lane) {
  const int32_t run = dim & -dim;
  const float factor = 1.0f / sqrtf(static_cast<float>(run));
  for (int32_t distance = 1; distance < run; distance *= 2) {
    __syncwarp();
    for (int32_t i = lane; i < dim / 2; i += gpu::kWarpThreads) {
      const int32_t d = i / distance * 2 * distance + i % distance;
      const float a = head[d], b = head[d + distance];
      head[d] = a + b;
      head[d + distance] = a - b;
    }
  }
  __syncwarp();
  for (int32_t d = lane; d < dim; d += gpu::kWarpThreads) head[d] *= factor;
  __syncwarp();
}

// A head of values of a row goes to the cache. All lanes of a warp.
template <int kWidth, class T, PageNumbers kNumbers>
__device__ void keep_value(const Arguments<T>& args, int64_t row, int32_t head, int lane) {
  const int64_t first = int64_t{args.query_heads + args.kv_heads} * args.head_dim;
  const T* from = args.qkv.row(row) + first + int64_t{head} * args.value_dim;
  keep_head<kWidth>(
      from, lane,
      CachedToken<T, kNumbers>::of(args, args.slots[row], head, args.v_offset, args.value_dim));
}

// Element `e` of the head in `from`, rotated.
template <RopeStyle kStyle>
__device__ float rotated(const float* from, int e, int half, const float* cos, const float* sin) {
  if (e >= 2 * half) return from[e];
  const int pair = kStyle == RopeStyle::kHalf ? e % half : e / 2;
  const int a = kStyle == RopeStyle::kHalf ? pair : 2 * pair;
  const int b = kStyle == RopeStyle::kHalf ? pair + half : 2 * pair + 1;
  return e == a ? from[a] * cos[pair] - from[b] * sin[pair]
                : from[b] * cos[pair] + from[a] * sin[pair];
}

template <RopeStyle kStyle, class T, int kWidth, PageNumbers kNumbers>
__global__ void __launch_bounds__(kWarps* gpu::kWarpThreads) rope_kv_head(Arguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  __shared__ float heads[kWarps][kHeadDimMax];
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  const int32_t head = static_cast<int32_t>(blockIdx.y) * kWarps + warp;
  const int32_t keys_from = args.query_heads, values_from = keys_from + args.kv_heads;
  if (head >= values_from + args.kv_heads) return;
  const int64_t t = blockIdx.x;
  constexpr int kStep = gpu::kWarpThreads * kWidth;

  if (head >= values_from) {
    keep_value<kWidth, T, kNumbers>(args, t, head - values_from, lane);
    return;
  }
  T* at = args.qkv.row(t) + static_cast<int64_t>(head) * args.head_dim;

  float* held = heads[warp];  // [d]
  float squares = 0.0f;
  for (int d = lane * kWidth; d < args.head_dim; d += kStep) {
    const auto value = gpu::Vector<T, kWidth>::load(at + d);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      held[d + i] = gpu::to_float(value.values[i]);
      squares += held[d + i] * held[d + i];
    }
  }
  const float* norm = head < keys_from ? args.q_norm : args.k_norm;
  if (norm != nullptr) {
    const float mean = gpu::warp_sum(squares) / static_cast<float>(args.head_dim);
    const float factor = rsqrtf(mean + args.norm_eps);
    for (int d = lane * kWidth; d < args.head_dim; d += kStep) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) held[d + i] *= factor * norm[d + i];
    }
  }
  __syncwarp();
  const float *cos = args.cos.row(t), *sin = args.sin.row(t);
  const bool is_key = head >= keys_from;
  CachedToken<T, kNumbers> key{};
  if (is_key) {
    key = CachedToken<T, kNumbers>::of(args, args.slots[t], head - keys_from, 0, args.head_dim);
  }
  __shared__ float mixed[kNumbers == PageNumbers::kInt4 ? kWarps : 1][kHeadDimMax];
  if constexpr (kNumbers == PageNumbers::kInt4) {
    for (int d = lane; d < args.head_dim; d += gpu::kWarpThreads) {
      mixed[warp][d] = rotated<kStyle>(held, d, args.half, cos, sin);
    }
    mix_shared_head(mixed[warp], args.head_dim, lane);
  }
  for (int d = lane * kWidth; d < args.head_dim; d += kStep) {
    gpu::Vector<T, kWidth> value;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float number = kNumbers == PageNumbers::kInt4
                               ? mixed[warp][d + i]
                               : rotated<kStyle>(held, d + i, args.half, cos, sin);
      value.values[i] = gpu::from_float<T>(number);
    }
    value.store(at + d);
    if constexpr (!kIsScaled<kNumbers>) {
      if (is_key) key.store(value, d, {});
    }
  }
  if constexpr (kIsScaled<kNumbers>) {
    if (is_key) keep_head<kWidth>(at, lane, key);
  }
}

// --- heads whose halves rotate: 16 bytes a lane, in registers (rope_kv_lanes.cuh) ---
template <class T, int kLanes, PageNumbers kNumbers>
__global__ void __launch_bounds__(kWarps* gpu::kWarpThreads) rope_kv_lanes(Arguments<T> args) {
  using Lane = gpu::RopeLane<T, kLanes>;
  constexpr int kDim = Lane::kDim, kHeads = kWarps * gpu::kWarpThreads / kLanes;
  gpu::let_next_kernel_start();
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int32_t head = static_cast<int32_t>(blockIdx.y * kHeads + threadIdx.x / kLanes);
  const int32_t keys_from = args.query_heads, values_from = keys_from + args.kv_heads;
  const int32_t heads = values_from + args.kv_heads;
  const bool is_value = head >= values_from, is_query = head < keys_from;
  const int64_t t = blockIdx.x;
  gpu::wait_for_earlier_kernels();
  // Lanes without a head go on: the others ask them.
  T* at = args.qkv.row(t) + static_cast<int64_t>(head < heads ? head : 0) * kDim +
          lane * gpu::kRopeLaneElements;
  auto elements = Lane::Elements::load(at);
  const auto angles = Lane::Angles::load(args.cos.row(t), args.sin.row(t), lane);
  const int64_t slot = args.slots[t];
  Lane::template turn<kNumbers == PageNumbers::kInt4>(
      elements, lane, angles, args.q_norm != nullptr, is_query ? args.q_norm : args.k_norm,
      args.norm_eps, is_value);
  HeadScale scale{};
  if constexpr (kIsScaled<kNumbers>) {
    scale = HeadScale::of<kNumbers>(largest_of_lanes<kLanes>(largest_magnitude(elements, 0)));
  }
  if (head >= heads) return;
  if (!is_value) elements.store(at);
  if (is_query) return;
  const int32_t kv_head = head - (is_value ? values_from : keys_from);
  const auto to = CachedToken<T, kNumbers>::of(args, slot, kv_head, is_value ? args.v_offset : 0,
                                               args.head_dim);
  to.store(elements, lane * gpu::kRopeLaneElements, scale);
  if constexpr (kIsScaled<kNumbers>) {
    if (lane == 0) to.store_scale(scale);
  }
}

template <class T>
Arguments<T> arguments_of(const RopeKvArgs& args) {
  return {.qkv = gpu::rows_of<T>(args.qkv),
          .cos = gpu::rows_of<float>(args.cos),
          .sin = gpu::rows_of<float>(args.sin),
          .slots = args.slots.data(),
          .q_norm = args.q_norm,
          .k_norm = args.k_norm,
          .norm_eps = args.norm_eps,
          .cache = args.kv.base,
          .block_stride = args.kv.block_stride,
          .v_offset = args.kv.v_offset,
          .block_tokens = args.kv.block_tokens,
          .query_heads = args.query_heads,
          .kv_heads = args.kv.kv_heads,
          .head_dim = args.kv.k_dim,
          .half = static_cast<int32_t>(args.cos.columns()),
          .value_dim = args.kv.v_dim};
}

// A block for `heads` heads of a token.
template <class T>
void launch(OpContext& context, const RopeKvArgs& args, void (*kernel)(Arguments<T>), int heads) {
  const Arguments<T> arguments = arguments_of<T>(args);
  const dim3 grid(static_cast<unsigned>(args.qkv.rows()),
                  gpu::blocks_for(arguments.query_heads + 2 * arguments.kv_heads, heads));
  gpu::launch(context, kernel, grid, kWarps * gpu::kWarpThreads, arguments);
}

template <class T, int kWidth, PageNumbers kNumbers>
void launch_heads(OpContext& context, const RopeKvArgs& args) {
  const auto kernel = args.style == RopeStyle::kHalf
                          ? rope_kv_head<RopeStyle::kHalf, T, kWidth, kNumbers>
                          : rope_kv_head<RopeStyle::kInterleaved, T, kWidth, kNumbers>;
  launch<T>(context, args, kernel, kWarps);
}
template <bool kWide>
void run(OpContext& context, const RopeKvArgs& args) {
  gpu::with_float_type(args.qkv.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? 4 : 1;
    gpu::with_page_numbers(
        args.kv, [&](auto numbers) { launch_heads<T, kWidth, numbers.value>(context, args); });
  });
}

template <class T, int kLanes>
void launch_lanes(OpContext& context, const RopeKvArgs& args) {
  gpu::with_page_numbers(args.kv, [&](auto numbers) {
    launch<T>(context, args, rope_kv_lanes<T, kLanes, numbers.value>,
              kWarps * gpu::kWarpThreads / kLanes);
  });
}
template <int kLanes>
void run_lanes(OpContext& context, const RopeKvArgs& args) {
  if (args.qkv.dtype == DType::kF16) return launch_lanes<__half, kLanes>(context, args);
  launch_lanes<__nv_bfloat16, kLanes>(context, args);
}

bool any(const DeviceTraits& traits, const RopeKvArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.kv.keys == KeyLayout::kRows &&
         (all_plain(args.kv, args.qkv.dtype) || alike_in_columns(args.kv)) &&
         (!has_4_bits(args.kv.k_format) || args.kv.k_dim % kKvColumnOf4Bits == 0) &&
         args.kv.k_dim <= kHeadDimMax;
}
// Heads, rows and blocks start where an access of 4 elements may.
bool wide(const DeviceTraits& traits, const RopeKvArgs& args) {
  const int64_t access = 4 * dtype_info(args.qkv.dtype).block_bytes;
  const auto aligned = [&](const std::byte* address, int64_t stride) {
    return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(access) == 0 &&
           stride % access == 0;
  };
  return any(traits, args) && args.kv.k_dim % 4 == 0 && args.kv.v_dim % 4 == 0 &&
         aligned(args.qkv.data, args.qkv.row_stride) &&
         aligned(args.kv.base, args.kv.block_stride) && args.kv.v_offset % access == 0;
}

// 16-bit heads of kLanes * 8 elements, all rotated, on 16 bytes wherever they lie.
template <int kLanes>
bool lanes(const DeviceTraits& traits, const RopeKvArgs& args) {
  constexpr int32_t kDim = kLanes * gpu::kRopeLaneElements;
  const auto on_access = [](const void* address) { return gpu::multiple_of_access(address); };
  return any(traits, args) && args.style == RopeStyle::kHalf && args.kv.k_dim == kDim &&
         args.kv.v_dim == kDim && args.qkv.dtype != DType::kF32 && args.cos.columns() == kDim / 2 &&
         gpu::rows_aligned(args.qkv) && gpu::rows_aligned(args.cos) &&
         gpu::rows_aligned(args.sin) && on_access(args.q_norm) && on_access(args.k_norm) &&
         on_access(args.kv.base) && args.kv.block_stride % gpu::kAccessBytes == 0 &&
         args.kv.v_offset % gpu::kAccessBytes == 0;
}

constexpr std::array kKernels = {
    Kernel<RopeKvArgs>{"rope_kv/cuda/lanes_8", lanes<8>, run_lanes<8>},
    Kernel<RopeKvArgs>{"rope_kv/cuda/lanes_16", lanes<16>, run_lanes<16>},
    Kernel<RopeKvArgs>{"rope_kv/cuda/lanes_32", lanes<32>, run_lanes<32>},
    Kernel<RopeKvArgs>{"rope_kv/cuda/wide_head", wide, run<true>},
    Kernel<RopeKvArgs>{"rope_kv/cuda/any_head", any, run<false>},
};

}  // namespace

KernelTable<RopeKvArgs> rope_kv_cuda_kernels() { return kKernels; }

}  // namespace headrace
