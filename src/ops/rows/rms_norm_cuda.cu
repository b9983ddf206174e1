// RMSNorm with residual on CUDA: one block a group of a row.
//   x, residual, out [T, D] f32, f16 or bf16;  weight [D / groups] f32;  sums in f32
// A group is read once, kept in registers, and written once: columns up to kThreads * kHeld *
// kWidth (4,096 for f32, 8,192 for 16-bit types); the rest of a longer one is read a second time,
// from L1 or L2.
#include <array>
#include <cstdint>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/rows/rms_norm.h"

namespace headrace {
namespace {

constexpr int kThreads = 512;  // 8 elements each are a row of 4,096: one access
constexpr int kHeld = 2;       // accesses of a row that a thread keeps in registers

template <class T>
struct Rows {
  T* x;
  const T* residual;  // or null
  const float* weight;
  T* out;
  int64_t x_stride, residual_stride, out_stride;  // elements
  int32_t columns;                                // of a group
  float eps;
  float residual_scale;
};

// value := value + scale * added, stored to x.
template <class T, int kWidth>
__device__ void add_residual(gpu::Vector<T, kWidth>& value, const gpu::Vector<T, kWidth>& added,
                             float scale, T* x) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float sum = gpu::to_float(value.values[i]) + scale * gpu::to_float(added.values[i]);
    value.values[i] = gpu::from_float<T>(sum);
  }
  value.store(x);
}

template <class T, int kWidth>
__device__ float sum_squares(const gpu::Vector<T, kWidth>& value) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float x = gpu::to_float(value.values[i]);
    sum += x * x;
  }
  return sum;
}

template <class T, int kWidth>
__device__ void store_scaled(const gpu::Vector<T, kWidth>& value,
                             const gpu::Vector<float, kWidth>& weight, float scale, T* out) {
  gpu::Vector<T, kWidth> result;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    result.values[i] =
        gpu::from_float<T>(gpu::to_float(value.values[i]) * scale * weight.values[i]);
  }
  result.store(out);
}

// kWidth elements an access; columns, strides and addresses are multiples of it.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) rms_norm_row(Rows<T> rows) {
  using Weights = gpu::Vector<float, kWidth>;
  constexpr int kStep = kThreads * kWidth;
  const int64_t row = blockIdx.x;
  const int32_t first = static_cast<int32_t>(threadIdx.x) * kWidth;
  const int64_t from = static_cast<int64_t>(blockIdx.y) * rows.columns;
  T* x = rows.x + row * rows.x_stride + from;
  const T* residual =
      rows.residual == nullptr ? nullptr : rows.residual + row * rows.residual_stride + from;
  T* out = rows.out + row * rows.out_stride + from;

  gpu::let_next_kernel_start();
  Weights weights[kHeld];  // the model's: no kernel writes them
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int32_t at = first + i * kStep;
    if (at < rows.columns) weights[i] = Weights::load(rows.weight + at);
  }
  gpu::wait_for_earlier_kernels();
  // All loads before the first store: the compiler cannot tell that a store to x is not what the
  // next load reads.
  gpu::Vector<T, kWidth> held[kHeld], added[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int32_t at = first + i * kStep;
    if (at >= rows.columns) continue;
    held[i] = gpu::Vector<T, kWidth>::load(x + at);
    if (residual != nullptr) added[i] = gpu::Vector<T, kWidth>::load(residual + at);
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int32_t at = first + i * kStep;
    if (at >= rows.columns) continue;
    if (residual != nullptr) {
      add_residual<T, kWidth>(held[i], added[i], rows.residual_scale, x + at);
    }
    sum += sum_squares<T, kWidth>(held[i]);
  }
  for (int32_t at = first + kHeld * kStep; at < rows.columns; at += kStep) {
    auto value = gpu::Vector<T, kWidth>::load(x + at);
    if (residual != nullptr) {
      const auto more = gpu::Vector<T, kWidth>::load(residual + at);
      add_residual<T, kWidth>(value, more, rows.residual_scale, x + at);
    }
    sum += sum_squares<T, kWidth>(value);
  }

  const float mean = gpu::block_sum<kThreads>(sum) / static_cast<float>(rows.columns);
  const float scale = rsqrtf(mean + rows.eps);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int32_t at = first + i * kStep;
    if (at < rows.columns) store_scaled<T, kWidth>(held[i], weights[i], scale, out + at);
  }
  for (int32_t at = first + kHeld * kStep; at < rows.columns; at += kStep) {
    store_scaled<T, kWidth>(gpu::Vector<T, kWidth>::load(x + at), Weights::load(rows.weight + at),
                            scale, out + at);
  }
}

template <class T, int kWidth>
void launch(OpContext& context, const RmsNormArgs& args) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const Rows<T> rows{.x = reinterpret_cast<T*>(args.x.data),
                     .residual = reinterpret_cast<const T*>(args.residual.data),
                     .weight = args.weight,
                     .out = reinterpret_cast<T*>(args.out.data),
                     .x_stride = args.x.row_stride / kBytes,
                     .residual_stride = args.residual.row_stride / kBytes,
                     .out_stride = args.out.row_stride / kBytes,
                     .columns = static_cast<int32_t>(args.x.columns() / args.groups),
                     .eps = args.eps,
                     .residual_scale = args.residual_scale};
  const dim3 blocks(static_cast<unsigned>(args.x.rows()), static_cast<unsigned>(args.groups));
  gpu::launch(context, rms_norm_row<T, kWidth>, blocks, kThreads, rows);
}

template <bool kWide>
void run(OpContext& context, const RmsNormArgs& args) {
  switch (args.x.dtype) {
    case DType::kF32:
      return launch < float, kWide ? 4 : 1 > (context, args);
    case DType::kF16:
      return launch < __half, kWide ? 8 : 1 > (context, args);
    case DType::kBF16:
      return launch < __nv_bfloat16, kWide ? 8 : 1 > (context, args);
    default:
      CHECK_MSG(false, "rms_norm on CUDA takes F32, F16 and BF16");
  }
}

bool any_row(const DeviceTraits& traits, const RmsNormArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.x.columns() <= INT32_MAX / 2 &&
         (args.x.dtype == DType::kF32 || args.x.dtype == DType::kF16 ||
          args.x.dtype == DType::kBF16);
}

bool wide_rows(const DeviceTraits& traits, const RmsNormArgs& args) {
  return any_row(traits, args) &&
         gpu::whole_accesses(args.x.dtype, args.x.columns() / args.groups) &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.residual) &&
         gpu::rows_aligned(args.out) && gpu::multiple_of_access(args.weight);
}

constexpr std::array kKernels = {
    Kernel<RmsNormArgs>{"rms_norm/cuda/wide_row", wide_rows, run<true>},
    Kernel<RmsNormArgs>{"rms_norm/cuda/any_row", any_row, run<false>},
};

}  // namespace

KernelTable<RmsNormArgs> rms_norm_cuda_kernels() { return kKernels; }

}  // namespace headrace
