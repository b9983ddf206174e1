// Rows in pages on CUDA: one block a row, a number a thread. Pages of plain numbers alone.
#include <array>

#include "ops/attention/page_rows.h"
#include "ops/cuda_launch.cuh"

namespace headrace {
namespace {

constexpr int kThreads = 256;
constexpr float kF16Max = 65504.0f;

// Where the numbers of a token lie, in elements.
struct PageLayout {
  int64_t block_stride, v_offset;
  int32_t block_tokens, k_dim, v_dim;  // v_dim 0: values are parts of keys

  __device__ __forceinline__ int64_t place(int64_t slot, int64_t c) const {
    const int64_t block = slot / block_tokens, token = slot % block_tokens;
    const int64_t head = c / (k_dim + v_dim), d = c % (k_dim + v_dim);
    const int64_t in_block = d < k_dim
                                 ? (head * block_tokens + token) * k_dim + d
                                 : v_offset + (head * block_tokens + token) * v_dim + d - k_dim;
    return block * block_stride + in_block;
  }
};

template <class Kept>
__device__ __forceinline__ Kept kept(float number) {
  return static_cast<Kept>(number);
}
template <>
__device__ __forceinline__ __half kept<__half>(float number) {
  // A comparison with NaN is false, so that NaN stays.
  return __float2half(number > kF16Max ? kF16Max : number < -kF16Max ? -kF16Max : number);
}

template <class T, class Kept>
__global__ void __launch_bounds__(kThreads)
    store_rows(gpu::RowsOf<const T> rows, const int64_t* slots, Kept* pages, PageLayout layout,
               int64_t columns) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t slot = slots[blockIdx.x];
  const T* const row = rows.row(blockIdx.x);
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) {
    pages[layout.place(slot, c)] = kept<Kept>(static_cast<float>(row[c]));
  }
}

template <class T, class Kept>
__global__ void __launch_bounds__(kThreads)
    load_rows(gpu::RowsOf<T> rows, const int64_t* slots, const Kept* pages, PageLayout layout,
              int64_t columns) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t slot = slots[blockIdx.x];
  T* const row = rows.row(blockIdx.x);
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) {
    row[c] = static_cast<T>(static_cast<float>(pages[layout.place(slot, c)]));
  }
}

template <class T, class Kept>
void run_of(OpContext& context, const PageRowsArgs& args) {
  const KvLayerView& kv = args.kv;
  const auto element = static_cast<int64_t>(sizeof(Kept));
  const PageLayout layout{.block_stride = kv.block_stride / element,
                          .v_offset = kv.v_offset / element,
                          .block_tokens = kv.block_tokens,
                          .k_dim = kv.k_dim,
                          .v_dim = kv.v_aliases_k ? 0 : kv.v_dim};
  const auto blocks = static_cast<unsigned>(args.rows.rows());
  auto* const pages = reinterpret_cast<Kept*>(kv.base);
  if (args.way == PageRowsWay::kStore) {
    gpu::launch(context, store_rows<T, Kept>, blocks, kThreads, gpu::rows_of<const T>(args.rows),
                args.slots.data(), pages, layout, args.rows.columns());
  } else {
    gpu::launch(context, load_rows<T, Kept>, blocks, kThreads, gpu::rows_of<T>(args.rows),
                args.slots.data(), pages, layout, args.rows.columns());
  }
}

void run(OpContext& context, const PageRowsArgs& args) {
  gpu::with_float_type(args.rows.dtype, [&](auto row_type) {
    gpu::with_float_type(kv_element(args.kv.k_format), [&](auto kept_type) {
      run_of<typename decltype(row_type)::type, typename decltype(kept_type)::type>(context, args);
    });
  });
}

bool is_plain(KvFormat format) {
  return format == KvFormat::kF32 || format == KvFormat::kF16 || format == KvFormat::kBF16;
}

bool plain(const DeviceTraits& traits, const PageRowsArgs& args) {
  const KvLayerView& kv = args.kv;
  return traits.kind == DeviceKind::kCuda && kv.keys == KeyLayout::kRows && is_plain(kv.k_format) &&
         (kv.v_aliases_k || kv.v_format == kv.k_format);
}

constexpr std::array kKernels = {Kernel<PageRowsArgs>{"page_rows/cuda/plain", plain, run}};

}  // namespace

KernelTable<PageRowsArgs> page_rows_cuda_kernels() { return kKernels; }

}  // namespace headrace
