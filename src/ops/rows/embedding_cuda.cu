// Embedding lookup on CUDA: out[t] = table[tokens[t]] * scale, one block a row.
//   tokens [T] in device memory;  table [V, D] and out [T, D] of one type: f32, f16 or bf16; or the
//   table in packed groups of a block type; of learned positions also a row of [P, D] f32
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/packing/block_types.cuh"
#include "ops/rows/embedding.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;

// Learned positions, or none. A position that is none, which only a row that nobody reads may
// have, takes the nearest.
struct PositionRows {
  const int32_t* positions;  // [T]
  const float* rows;         // [P, D]; null: none is added
  int32_t last;              // P - 1
  int64_t columns;

  __device__ const float* of(unsigned token) const {
    return rows == nullptr ? nullptr : rows + max(0, min(positions[token], last)) * columns;
  }
};

// Of which rows are looked up; from `known` on, which may be more than a token can be, the first.
struct Tokens {
  const TokenId* tokens;  // [T]
  uint32_t known;

  __device__ TokenId of(unsigned row) const {
    const TokenId token = tokens[row];
    return static_cast<uint32_t>(token) < known ? token : 0;
  }
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    look_up(Tokens tokens, gpu::RowsOf<const T> table, gpu::RowsOf<T> out, float scale,
            int64_t columns, PositionRows positions) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const T* from = table.row(tokens.of(blockIdx.x));
  const float* const position = positions.of(blockIdx.x);
  T* to = out.row(blockIdx.x);
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kWidth; at < columns;
       at += kThreads * kWidth) {
    auto value = gpu::Vector<T, kWidth>::load(from + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float scaled = gpu::to_float(value.values[i]) * scale;
      if (position != nullptr) scaled += position[at + i];
      value.values[i] = gpu::from_float<T>(scaled);
    }
    value.store(to + at);
  }
}

// A row of packed groups: a thread takes two quads of 32 columns at a time.
template <class T, int kType>
__global__ void __launch_bounds__(kThreads)
    look_up_packed(Tokens tokens, gpu::PackedSegment table, gpu::RowsOf<T> out, float scale,
                   PositionRows positions) {
  constexpr PackedFormat kFormat = gpu::kFormat<kType>;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const TokenId token = tokens.of(blockIdx.x);
  const gpu::PackedGroup group = table.group(token / kLinearGroupRows);
  const int row = token % static_cast<int>(kLinearGroupRows);
  T* to = out.row(blockIdx.x);
  const float* const position = positions.of(blockIdx.x);
  for (int at = static_cast<int>(threadIdx.x); at < 4 * table.chunks; at += kThreads) {
    const int chunk = at / 4, quad = at % 4;
    const gpu::QuadDwords<kType> quads = gpu::load_quads<kType>(group, chunk, row, quad);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t stored = half == 0 ? gpu::stored_quants<kType, 0>(quads, quad)
                                        : gpu::stored_quants<kType, 1>(quads, quad);
      const int column = 32 * chunk + 16 * half + 4 * quad;
      const gpu::PartScale part = gpu::scale_of<kType>(
          gpu::load_scale<kType>(gpu::scales_of_block<kType>(group, column / kFormat.columns), row,
                                 column % kFormat.columns / kFormat.part_columns));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float value = fmaf(part.scale, gpu::quant<kType>(stored, i), part.minimum) * scale;
        if (position != nullptr) value += position[column + i];
        to[column + i] = gpu::from_float<T>(value);
      }
    }
  }
}

PositionRows position_rows(const EmbeddingArgs& args) {
  const ConstTensorView& table = args.position_table;
  if (table.data == nullptr) return {nullptr, nullptr, 0, 0};
  return {args.positions.data(), reinterpret_cast<const float*>(table.data),
          static_cast<int32_t>(table.rows() - 1), table.columns()};
}

Tokens tokens_of(const EmbeddingArgs& args, int64_t rows) {
  return {args.tokens.data(), args.first_for_others ? static_cast<uint32_t>(rows) : UINT32_MAX};
}

void run_packed(OpContext& context, const EmbeddingArgs& args) {
  const LinearWeight::Segment& table = args.packed->segments().front();
  gpu::with_half_type(args.out.dtype, [&]<class T>(gpu::ElementType<T>) {
    gpu::with_block_type(table.dtype, [&]<int kType>() {
      gpu::launch(context, look_up_packed<T, kType>, static_cast<unsigned>(args.tokens.size()),
                  kThreads, tokens_of(args, args.packed->n()),
                  gpu::packed_segment(table, args.packed->k()), gpu::rows_of<T>(args.out),
                  args.scale, position_rows(args));
    });
  });
}

bool packed(const DeviceTraits& traits, const EmbeddingArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.packed != nullptr &&
         args.packed->segments().size() == 1 &&
         (args.out.dtype == DType::kF16 || args.out.dtype == DType::kBF16);
}

template <bool kWide>
void run(OpContext& context, const EmbeddingArgs& args) {
  gpu::with_float_type(args.table.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    gpu::launch(context, look_up<T, kWidth>, static_cast<unsigned>(args.tokens.size()), kThreads,
                tokens_of(args, args.table.rows()), gpu::rows_of<T>(args.table),
                gpu::rows_of<T>(args.out), args.scale, args.out.columns(), position_rows(args));
  });
}

bool any(const DeviceTraits& traits, const EmbeddingArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.packed == nullptr &&
         args.table.dtype == args.out.dtype;
}
bool wide(const DeviceTraits& traits, const EmbeddingArgs& args) {
  return any(traits, args) && gpu::whole_accesses(args.table.dtype, args.table.columns()) &&
         gpu::rows_aligned(args.table) && gpu::rows_aligned(args.out);
}

constexpr std::array kKernels = {
    Kernel<EmbeddingArgs>{"embedding/cuda/wide", wide, run<true>},
    Kernel<EmbeddingArgs>{"embedding/cuda/any", any, run<false>},
    Kernel<EmbeddingArgs>{"embedding/cuda/packed", packed, run_packed},
};

}  // namespace

KernelTable<EmbeddingArgs> embedding_cuda_kernels() { return kKernels; }

}  // namespace headrace
