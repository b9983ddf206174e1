#include "ops/linear/float8.h"

#include "gpu/float8.cuh"
#include "gpu/reduce.cuh"
#include "ops/linear/made_rows.cuh"
#include "ops/linear/plain.h"
#include "ops/linear/stream.h"
#include "ops/packing/block_types.cuh"
#include "tensor/gemm_library.h"

namespace headrace {
namespace {

// ---- rows of x ----------------------------------------------------------------------------------

constexpr int kPiece = 8;  // elements of an access
constexpr int kHeld = 2;   // accesses of a row that a thread keeps in registers
// Threads of a block, at most; and at least so many find room on a multiprocessor, by 64 registers
// each.
constexpr int kRowThreadsMax = 1024;

using gpu::MadeRows;
using gpu::RowsOfX;

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

// A block's row: pieces of it in registers, those that find no room read again. Of what a thread
// holds all is asked for before any of it is used or stored.
template <class T, RowsOfX kSource, int kThreads>
class Float8Row {
  using Piece = gpu::Vector<T, kPiece>;
  using Weights = gpu::Vector<float, kPiece>;
  static constexpr bool kNormed = kSource == RowsOfX::kNormed;
  static constexpr int32_t kStep = kThreads * kPiece;

 public:
  __device__ Float8Row(const MadeRows<T>& args, int64_t row)
      : args_(args),
        x_(args.x.row(row)),
        residual_(args.residual.data == nullptr ? nullptr : args.residual.row(row)),
        first_(static_cast<int32_t>(threadIdx.x) * kPiece) {}

  // What no kernel writes.
  __device__ void read_norm() {
    if constexpr (!kNormed) return;
    for_held([&](int i, int32_t at) { weights_[i] = Weights::load(args_.norm + at); });
  }
  __device__ void read() {
    for_held([&](int i, int32_t at) { held_[i] = Piece::load(x_ + at); });
    if constexpr (kSource == RowsOfX::kGated) {
      Piece ups[kHeld];
      for_held([&](int i, int32_t at) { ups[i] = Piece::load(x_ + args_.k + at); });
      gpu::with_gate(args_.activation, [&]<class Act>() {
        for_held([&](int i, int32_t) { gpu::apply_gates<Act>(held_[i], ups[i]); });
      });
    }
    if constexpr (kNormed) {
      const float mean = gpu::block_sum<kThreads>(sum_of_squares()) / static_cast<float>(args_.k);
      factor_ = rsqrtf(mean + args_.eps);
      for_held([&](int i, int32_t) { gpu::normalise(held_[i], factor_, weights_[i]); });
    }
  }
  // |the largest number| of the row.
  __device__ float largest() const {
    float largest = 0.0f;
    const auto look = [&](const Piece& piece) {
#pragma unroll
      for (int e = 0; e < kPiece; ++e) {
        largest = gpu::max_or_nan(largest, fabsf(gpu::to_float(piece.values[e])));
      }
    };
    for_held([&](int i, int32_t) { look(held_[i]); });
    for_others([&](int32_t at) { look(made(at)); });
    return largest_of_block<kThreads>(largest);
  }
  __device__ void store(uint8_t* out, float factor) const {
    const auto store_piece = [&](const Piece& piece, int32_t at) {
      float scaled[kPiece];
#pragma unroll
      for (int e = 0; e < kPiece; ++e) scaled[e] = gpu::to_float(piece.values[e]) * factor;
      *reinterpret_cast<uint2*>(out + at) = {
          gpu::to_e4m3(scaled[0], scaled[1], scaled[2], scaled[3]),
          gpu::to_e4m3(scaled[4], scaled[5], scaled[6], scaled[7])};
    };
    for_held([&](int i, int32_t at) { store_piece(held_[i], at); });
    for_others([&](int32_t at) { store_piece(made(at), at); });
  }

 private:
  // body(i, its column) of the pieces that this thread holds; body(a column) of its others.
  template <class Body>
  __device__ __forceinline__ void for_held(const Body& body) const {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (first_ + i * kStep < args_.k) body(i, first_ + i * kStep);
    }
  }
  template <class Body>
  __device__ __forceinline__ void for_others(const Body& body) const {
#pragma unroll 1
    for (int32_t at = first_ + kHeld * kStep; at < args_.k; at += kStep) body(at);
  }

  // Of the row with what waits for it, which is added to x, too.
  __device__ __forceinline__ float sum_of_squares() {
    float squares = 0.0f;
    if (residual_ != nullptr) {
      Piece added[kHeld];
      for_held([&](int i, int32_t at) { added[i] = Piece::load(residual_ + at); });
      for_held([&](int i, int32_t at) {
        gpu::add_residual(held_[i], added[i], args_.residual_scale);
        held_[i].store(x_ + at);
      });
    }
    for_held([&](int i, int32_t) { squares += gpu::sum_of_squares(held_[i]); });
    for_others([&](int32_t at) {
      Piece piece = Piece::load(x_ + at);
      if (residual_ != nullptr) {
        gpu::add_residual(piece, Piece::load(residual_ + at), args_.residual_scale);
        piece.store(x_ + at);
      }
      squares += gpu::sum_of_squares(piece);
    });
    return squares;
  }
  // A piece that is not held, as it becomes FP8.
  __device__ __forceinline__ Piece made(int32_t at) const {
    Piece piece = Piece::load(x_ + at);
    if constexpr (kNormed) gpu::normalise(piece, factor_, Weights::load(args_.norm + at));
    if constexpr (kSource == RowsOfX::kGated) {
      const Piece up = Piece::load(x_ + args_.k + at);
      gpu::with_gate(args_.activation, [&]<class Act>() { gpu::apply_gates<Act>(piece, up); });
    }
    return piece;
  }
  const MadeRows<T>& args_;
  T* const x_;
  const T* const residual_;
  const int32_t first_;
  Piece held_[kHeld];
  Weights weights_[kNormed ? kHeld : 1];
  float factor_ = 1.0f;
};

// A block a row.
template <class T, RowsOfX kSource, int kThreads>
__global__ void __launch_bounds__(kThreads, kRowThreadsMax / kThreads)
    float8_row(MadeRows<T> args, uint8_t* numbers, float* scales) {
  const int64_t row = blockIdx.x;
  gpu::let_next_kernel_start();
  Float8Row<T, kSource, kThreads> values(args, row);
  values.read_norm();
  gpu::wait_for_earlier_kernels();
  values.read();
  const float scale = gpu::e4m3_row_scale(values.largest());
  if (threadIdx.x == 0) scales[row] = scale;
  values.store(numbers + row * args.k, 1.0f / scale);
}

// ---- products -----------------------------------------------------------------------------------

// body.operator()<kThreads>(): as many as keep a row of k numbers in their registers, if there are.
template <int kThreads = 256, class Body>
void with_row_threads(int64_t k, const Body& body) {
  if constexpr (kThreads < kRowThreadsMax) {
    if (k > int64_t{kThreads} * kPiece * kHeld) return with_row_threads<2 * kThreads>(k, body);
  }
  body.template operator()<kThreads>();
}

// `source`: rows, or the arguments of the op that makes them.
template <class Source>
Float8Rows start_rows(OpContext& context, const Source& source, std::byte* memory) {
  const DType dtype = gpu::read_rows(source).dtype;
  int64_t m = 0, k = 0;
  float* scales = nullptr;
  gpu::with_half_type(dtype, [&]<class T>(gpu::ElementType<T>) {
    const MadeRows<T> rows = gpu::made_rows<T>(source);
    m = rows.m;
    k = rows.k;
    scales = reinterpret_cast<float*>(memory + float8_rows_bytes(m, k) - float8_rows_bytes(m, 0));
    with_row_threads(k, [&]<int kThreads>() {
      gpu::launch(context, float8_row<T, gpu::kRowsOf<Source>, kThreads>, static_cast<unsigned>(m),
                  kThreads, rows, reinterpret_cast<uint8_t*>(memory), scales);
    });
  });
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

// Whether rows of x become FP8 in a kernel that also makes them: those that some product of FP8
// takes.
bool product_fits(const DeviceTraits& traits, const LinearArgs& product) {
  if (!float8_types(traits, product)) return false;
  return float8_streams(traits, product.x.rows()) ? stream_fits(traits, {.linear = product})
                                                  : float8_library_fits(traits, product);
}
bool norm_fits(const DeviceTraits& traits, const RmsNormArgs& norm, const LinearArgs& product) {
  return product_fits(traits, product) && gpu::norm_fits_made_rows(norm);
}

// make(memory) starts the kernel that makes rows of x.
template <class Make>
void multiply_made_rows(OpContext& context, const LinearArgs& args, const Make& make) {
  const Workspace::Mark mark(context.workspace);
  const Float8Rows rows =
      make(context.workspace.take(float8_rows_bytes(args.x.rows(), args.x.columns())));
  if (float8_streams(context.device.traits(), args.x.rows())) {
    return run_stream(context, {.linear = args, .rows = &rows});
  }
  run_library(context, args, rows);
}

}  // namespace

bool float8_types(const DeviceTraits& traits, const LinearArgs& args) {
  const DType dtype = args.x.dtype;
  return traits.kind == DeviceKind::kCuda && args.weight->is_matrix_of(DType::kF8) &&
         (dtype == DType::kBF16 || dtype == DType::kF16) &&
         (args.y.dtype == dtype || args.y.dtype == DType::kF32);
}

Float8Rows make_float8_rows(OpContext& context, const ConstTensorView& x, std::byte* memory) {
  return start_rows(context, x, memory);
}
Float8Rows make_float8_rows(OpContext& context, const RmsNormArgs& norm, std::byte* memory) {
  return start_rows(context, norm, memory);
}
Float8Rows make_float8_rows(OpContext& context, const GatedActivationArgs& gates,
                            std::byte* memory) {
  return start_rows(context, gates, memory);
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
  multiply_made_rows(context, args.linear, [&](std::byte* memory) {
    return make_float8_rows(context, args.norm, memory);
  });
}

// Measured on an H200: with fewer rows two kernels of more blocks are ahead of one of a block a
// row. Not with batch invariance: the product before may apply the gates of few rows, to sums that
// it has not rounded.
bool activated_float8_fits(const DeviceTraits& traits, const ActivatedLinearArgs& args) {
  constexpr int64_t kRowsMin = 256;
  return !traits.batch_invariant && args.linear.x.rows() >= kRowsMin &&
         product_fits(traits, args.linear) && gpu::gates_fit_made_rows(args.gates);
}

void run_activated_float8(OpContext& context, const ActivatedLinearArgs& args) {
  multiply_made_rows(context, args.linear, [&](std::byte* memory) {
    return make_float8_rows(context, args.gates, memory);
  });
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
