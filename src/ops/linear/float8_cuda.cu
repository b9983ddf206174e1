#include "ops/linear/float8.h"

#include "gpu/float8.cuh"
#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/plain.h"
#include "ops/linear/stream.h"
#include "tensor/gemm_library.h"

namespace headrace {
namespace {

// ---- rows of x ----------------------------------------------------------------------------------

constexpr int kPiece = 8;  // elements of an access
constexpr int kHeld = 4;   // accesses of a row that a thread keeps in registers
// Threads of a row: a long one (a feed-forward network's) finds room in their registers, too.
constexpr int kRowThreads = 256, kLongRowThreads = 512;
constexpr int64_t kLongRow = int64_t{kRowThreads} * kPiece * kHeld;

template <class T>
struct RowsIn {
  gpu::RowsOf<T> x;               // written where there is a residual
  gpu::RowsOf<const T> residual;  // as of RmsNormArgs, or no data
  const float* norm;              // [K], or null: rows as they are
  uint8_t* numbers;               // [M, K]
  float* scales;                  // [M]
  int32_t k;
  float eps, residual_scale;
};

// The largest of all threads, NaN if one has it, on every thread.
template <int kThreads>
__device__ __forceinline__ float largest_of_block(float largest) {
  constexpr int kWarps = kThreads / gpu::kWarpThreads;
  __shared__ float of_warp[kWarps];
#pragma unroll
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    largest = gpu::max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  if (threadIdx.x % gpu::kWarpThreads == 0) of_warp[threadIdx.x / gpu::kWarpThreads] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) largest = gpu::max_or_nan(largest, of_warp[warp]);
  return largest;
}

// A block's row: pieces of it in registers, those that find no room read again.
template <class T, bool kNormed, int kThreads>
class Float8Row {
  using Piece = gpu::Vector<T, kPiece>;
  using Weights = gpu::Vector<float, kPiece>;
  static constexpr int kStep = kThreads * kPiece;

 public:
  __device__ Float8Row(const RowsIn<T>& args, int64_t row)
      : args_(args),
        x_(args.x.row(row)),
        residual_(args.residual.data == nullptr ? nullptr : args.residual.row(row)),
        first_(static_cast<int32_t>(threadIdx.x) * kPiece) {}

  __device__ void read() {
    float squares = 0.0f;
    for_each([&](Piece& piece, int32_t at) {
      if constexpr (!kNormed) return;
      if (residual_ != nullptr) add_residual(piece, at);
#pragma unroll
      for (int e = 0; e < kPiece; ++e) {
        const float x = gpu::to_float(piece.values[e]);
        squares += x * x;
      }
    });
    if constexpr (kNormed) {
      const float mean = gpu::block_sum<kThreads>(squares) / static_cast<float>(args_.k);
      factor_ = rsqrtf(mean + args_.eps);
    }
    again_ = true;
  }
  // |the largest number| of the row.
  __device__ float largest() {
    float largest = 0.0f;
    for_each([&](Piece& piece, int32_t at) {
      normalise(piece, at);
#pragma unroll
      for (int e = 0; e < kPiece; ++e) {
        largest = gpu::max_or_nan(largest, fabsf(gpu::to_float(piece.values[e])));
      }
    });
    return largest_of_block<kThreads>(largest);
  }
  __device__ void store(uint8_t* out, float factor) {
    for_each([&](Piece& piece, int32_t at) {
      if (at >= held_end()) normalise(piece, at);
      float scaled[kPiece];
#pragma unroll
      for (int e = 0; e < kPiece; ++e) scaled[e] = gpu::to_float(piece.values[e]) * factor;
      *reinterpret_cast<uint2*>(out + at) = {
          gpu::to_e4m3(scaled[0], scaled[1], scaled[2], scaled[3]),
          gpu::to_e4m3(scaled[4], scaled[5], scaled[6], scaled[7])};
    });
  }

 private:
  static __device__ constexpr int32_t held_end() { return kHeld * kStep; }

  // body(piece, its column) of this thread's pieces.
  template <class Body>
  __device__ __forceinline__ void for_each(const Body& body) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int32_t at = first_ + i * kStep;
      if (at >= args_.k) break;
      if (!again_) held_[i] = Piece::load(x_ + at);
      body(held_[i], at);
    }
#pragma unroll 1
    for (int32_t at = first_ + held_end(); at < args_.k; at += kStep) {
      Piece piece = Piece::load(x_ + at);
      body(piece, at);
    }
  }
  __device__ __forceinline__ void add_residual(Piece& piece, int32_t at) {
    const Piece added = Piece::load(residual_ + at);
#pragma unroll
    for (int e = 0; e < kPiece; ++e) {
      piece.values[e] = gpu::from_float<T>(gpu::to_float(piece.values[e]) +
                                           args_.residual_scale * gpu::to_float(added.values[e]));
    }
    piece.store(x_ + at);
  }
  // As rms_norm does, rounded to T.
  __device__ __forceinline__ void normalise(Piece& piece, int32_t at) const {
    if constexpr (!kNormed) return;
    const Weights weights = Weights::load(args_.norm + at);
#pragma unroll
    for (int e = 0; e < kPiece; ++e) {
      piece.values[e] =
          gpu::from_float<T>(gpu::to_float(piece.values[e]) * factor_ * weights.values[e]);
    }
  }

  const RowsIn<T>& args_;
  T* const x_;
  const T* const residual_;
  const int32_t first_;
  Piece held_[kHeld];
  float factor_ = 1.0f;
  bool again_ = false;
};

// A block a row.
template <class T, bool kNormed, int kThreads>
__global__ void __launch_bounds__(kThreads) float8_row(RowsIn<T> args) {
  const int64_t row = blockIdx.x;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  Float8Row<T, kNormed, kThreads> values(args, row);
  values.read();
  const float scale = gpu::e4m3_row_scale(values.largest());
  if (threadIdx.x == 0) args.scales[row] = scale;
  values.store(args.numbers + row * args.k, 1.0f / scale);
}

// ---- products -----------------------------------------------------------------------------------

template <bool kNormed>
Float8Rows start_rows(OpContext& context, const ConstTensorView& x, const RmsNormArgs* norm,
                      std::byte* memory) {
  const int64_t m = x.rows(), k = x.columns();
  auto* const scales =
      reinterpret_cast<float*>(memory + float8_rows_bytes(m, k) - float8_rows_bytes(m, 0));
  const auto start = [&]<class T>(gpu::ElementType<T>) {
    const TensorView rows(const_cast<std::byte*>(x.data), x.dtype, x.shape, x.row_stride);
    RowsIn<T> arguments{.x = gpu::rows_of<T>(rows),
                        .residual = {},
                        .norm = nullptr,
                        .numbers = reinterpret_cast<uint8_t*>(memory),
                        .scales = scales,
                        .k = static_cast<int32_t>(k),
                        .eps = 0.0f,
                        .residual_scale = 1.0f};
    if (norm != nullptr) {
      arguments.residual = gpu::rows_of<T>(norm->residual);
      arguments.norm = norm->weight;
      arguments.eps = norm->eps;
      arguments.residual_scale = norm->residual_scale;
    }
    const auto blocks = static_cast<unsigned>(m);
    if (k > kLongRow) {
      gpu::launch(context, float8_row<T, kNormed, kLongRowThreads>, blocks, kLongRowThreads,
                  arguments);
    } else {
      gpu::launch(context, float8_row<T, kNormed, kRowThreads>, blocks, kRowThreads, arguments);
    }
  };
  if (x.dtype == DType::kF16) {
    start(gpu::ElementType<__half>());
  } else {
    start(gpu::ElementType<__nv_bfloat16>());
  }
  return {.numbers = ConstTensorView(memory, DType::kF8, Shape{m, k}), .scales = scales};
}

// REQUIRES: float8_library_fits(args)
void run_library(OpContext& context, const LinearArgs& args, const Float8Rows& rows) {
  const int64_t m = args.x.rows(), n = args.weight->n(), k = args.weight->k();
  const Workspace::Mark mark(context.workspace);
  std::byte* const workspace = context.workspace.take(GemmLibrary::kWorkspaceBytes);
  context.device.gemm_library().value()->run(
      context.stream,
      {.x = rows.numbers.data,
       .w = args.weight->matrix().data,
       .y = args.y.data,
       .m = m,
       .n = n,
       .k = k,
       .x_stride = k,
       .y_stride = args.y.row_stride / dtype_info(args.y.dtype).block_bytes,
       .dtype = DType::kF8,
       .y_dtype = args.y.dtype,
       .x_scales = rows.scales,
       .w_scales = args.weight->row_scales(),
       .accumulate = args.output == LinearOutput::kAccumulate},
      workspace);
  add_bias_rows(context, args.y, args.bias);
}

// Whether rows of x become FP8 with their norm: those that some product of FP8 takes.
bool norm_fits(const DeviceTraits& traits, const RmsNormArgs& norm, const LinearArgs& product) {
  if (!float8_types(traits, product)) return false;
  const bool taken = float8_streams(traits, product.x.rows())
                         ? stream_fits(traits, {.linear = product})
                         : float8_library_fits(traits, product);
  return taken && gpu::rows_aligned(norm.x) && gpu::rows_aligned(norm.residual) &&
         gpu::multiple_of_access(norm.weight);
}

}  // namespace

bool float8_types(const DeviceTraits& traits, const LinearArgs& args) {
  const DType dtype = args.x.dtype;
  return traits.kind == DeviceKind::kCuda && args.weight->is_matrix_of(DType::kF8) &&
         (dtype == DType::kBF16 || dtype == DType::kF16) &&
         (args.y.dtype == dtype || args.y.dtype == DType::kF32);
}

Float8Rows make_float8_rows(OpContext& context, const ConstTensorView& x, std::byte* memory) {
  return start_rows<false>(context, x, nullptr, memory);
}

Float8Rows make_float8_rows(OpContext& context, const RmsNormArgs& norm, std::byte* memory) {
  return start_rows<true>(context, norm.x, &norm, memory);
}

bool float8_library_fits(const DeviceTraits& traits, const LinearArgs& args) {
  if (traits.batch_invariant || !float8_types(traits, args)) return false;
  const Result<GemmLibrary*> library = args.weight->device().gemm_library();
  return library.ok() && (*library)->has_float8() && gpu::rows_aligned(args.x) &&
         gpu::rows_aligned(args.y);
}

void run_float8_library(OpContext& context, const LinearArgs& args) {
  const Workspace::Mark mark(context.workspace);
  std::byte* const memory =
      context.workspace.take(float8_rows_bytes(args.x.rows(), args.x.columns()));
  run_library(context, args, make_float8_rows(context, args.x, memory));
}

bool norm_float8_fits(const DeviceTraits& traits, const NormLinearArgs& args) {
  return norm_fits(traits, args.norm, args.linear);
}

void run_norm_float8(OpContext& context, const NormLinearArgs& args) {
  const LinearArgs& linear = args.linear;
  const Workspace::Mark mark(context.workspace);
  const Float8Rows rows = make_float8_rows(
      context, args.norm,
      context.workspace.take(float8_rows_bytes(linear.x.rows(), linear.x.columns())));
  if (float8_streams(context.device.traits(), linear.x.rows())) {
    return run_stream(context, {.linear = linear, .rows = &rows});
  }
  run_library(context, linear, rows);
}

bool norm_gated_float8_fits(const DeviceTraits& traits, const NormGatedLinearArgs& args) {
  return norm_fits(traits, args.norm, gate_up_product(args.gated));
}

// The activation is an op of its own: at the end of a tile of few rows one warp would have all of
// it.
void run_norm_gated_float8(OpContext& context, const NormGatedLinearArgs& args) {
  run_norm_float8(context, {.norm = args.norm, .linear = gate_up_product(args.gated)});
  activate_gate_up(context, args.gated);
}

}  // namespace headrace
