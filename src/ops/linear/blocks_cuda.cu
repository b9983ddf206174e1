#include "ops/linear/blocks.cuh"

#include <algorithm>

#include "ops/linear/plain.h"

namespace headrace {
namespace {

template <class T>
void multiply_few(OpContext& context, const LinearArgs& args) {
  for (const LinearWeight::Segment& segment : args.weight->segments()) {
    const gpu::FewArguments<T> arguments{gpu::blocks_arguments<T>(args, segment),
                                         gpu::rows_of<T>(args.x)};
    // Two blocks a multiprocessor where a block's groups allow it.
    const int64_t share =
        gpu::blocks_for(segment.group_count, 2 * context.device.traits().sm_count);
    const auto groups = static_cast<int32_t>(std::min<int64_t>(share, gpu::kGroupsMax));
    gpu::with_block_type(segment.dtype, [&]<int kType>() {
      const unsigned steps =
          gpu::blocks_for(arguments.common.weight.chunks, gpu::GroupStep<kType>::kChunks);
      const int warps = std::min(static_cast<int>(steps), gpu::kBlocksWarps);
      gpu::launch(context, gpu::multiply_few<T, kType>,
                  gpu::blocks_for(segment.group_count, groups), warps * gpu::kWarpThreads,
                  arguments, groups);
    });
  }
}

// Whether a lane may read four columns of x at a time.
bool reads_quads(const ConstTensorView& x) {
  constexpr int64_t kQuadBytes = 8;
  return reinterpret_cast<uintptr_t>(x.data) % kQuadBytes == 0 && x.row_stride % kQuadBytes == 0;
}

// Warps of a block that take different groups and read the same x: more, where blocks are many.
// Not a question of x, so that a row's order of sums is not.
int32_t row_warps(int64_t groups, int32_t sm_count) {
  if (groups >= int64_t{8} * sm_count) return 4;
  return groups >= sm_count ? 2 : 1;
}

template <class T>
void multiply_many(OpContext& context, const LinearArgs& args) {
  const Workspace::Mark mark(context.workspace);
  const int64_t chunks = args.x.columns() / 32;
  const int64_t x_blocks = gpu::blocks_for(args.x.rows(), 8 * gpu::kManyTiles);
  const int64_t pieces = x_blocks * gpu::kManyTiles * chunks;
  std::byte* const scratch = context.workspace.take(arranged_bytes(args.x.rows(), *args.weight));
  const gpu::ArrangedRows x{reinterpret_cast<uint4*>(scratch),
                            reinterpret_cast<float*>(scratch + pieces * 512)};
  gpu::launch(context,
              reads_quads(args.x) ? gpu::arrange_rows<T, true> : gpu::arrange_rows<T, false>,
              gpu::blocks_for(pieces, gpu::kBlocksWarps), gpu::kBlocksWarps * gpu::kWarpThreads,
              gpu::rows_of<T>(args.x), x, static_cast<int32_t>(args.x.rows()),
              static_cast<int32_t>(chunks), static_cast<int32_t>(pieces));
  for (const LinearWeight::Segment& segment : args.weight->segments()) {
    const int32_t warps = row_warps(segment.group_count, context.device.traits().sm_count);
    const gpu::ManyArguments<T> arguments{gpu::blocks_arguments<T>(args, segment), x,
                                          static_cast<int32_t>(x_blocks), warps};
    gpu::with_block_type(segment.dtype, [&]<int kType>() {
      const int64_t blocks = gpu::blocks_for(segment.group_count, warps) * x_blocks;
      gpu::launch(context, gpu::multiply_many<T, kType>, static_cast<unsigned>(blocks),
                  gpu::kBlocksWarps * gpu::kWarpThreads, arguments);
    });
  }
}

// Rows [first, first + count) of the weight, which are of one segment, to `out` [count, K].
template <class T>
void unpack_rows(OpContext& context, const LinearWeight& weight,
                 const LinearWeight::Segment& segment, int64_t first, int64_t count, T* out) {
  const int64_t first_group = (first - segment.first_row) / kLinearGroupRows;
  gpu::with_block_type(segment.dtype, [&]<int kType>() {
    const gpu::UnpackArguments<T> arguments{.weight = gpu::packed_segment(segment, weight.k()),
                                            .first_group = static_cast<int32_t>(first_group),
                                            .out = out,
                                            .k = static_cast<int32_t>(weight.k())};
    const unsigned steps = gpu::blocks_for(arguments.weight.chunks, gpu::GroupStep<kType>::kChunks);
    const dim3 blocks(gpu::blocks_for(steps, gpu::kBlocksWarps),
                      gpu::blocks_for(count, kLinearGroupRows));
    gpu::launch(context, gpu::unpack_blocks<T, kType>, blocks,
                gpu::kBlocksWarps * gpu::kWarpThreads, arguments);
  });
}

}  // namespace

bool blocks_fit(const DeviceTraits& traits, const LinearArgs& args) {
  const bool types = (args.x.dtype == DType::kF16 || args.x.dtype == DType::kBF16) &&
                     (args.y.dtype == args.x.dtype || args.y.dtype == DType::kF32);
  return traits.kind == DeviceKind::kCuda && types && !args.weight->is_matrix();
}

bool blocks_pay(const DeviceTraits& traits, const LinearArgs& args) {
  return blocks_fit(traits, args) && (traits.batch_invariant || args.x.rows() <= kBlocksRowsMax);
}

void run_blocks(OpContext& context, const LinearArgs& args) {
  gpu::with_half_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    // With batch invariance a row's sums are those of multiply_many() whatever stands beside it.
    if (args.x.rows() <= 8 && !context.device.traits().batch_invariant && reads_quads(args.x)) {
      return multiply_few<T>(context, args);
    }
    // Slabs of rows, so that scratch memory has a bound.
    for (int64_t first = 0; first < args.x.rows(); first += kBlocksSlabRows) {
      const int64_t count = std::min(kBlocksSlabRows, args.x.rows() - first);
      LinearArgs slab = args;
      slab.x = args.x.row_range(first, count);
      slab.y = args.y.row_range(first, count);
      multiply_many<T>(context, slab);
    }
  });
}

void unpack_block_rows(OpContext& context, const LinearWeight& weight, int64_t first,
                       const TensorView& out) {
  for (const LinearWeight::Segment& segment : weight.segments()) {
    if (first < segment.first_row || first >= segment.first_row + segment.row_count) continue;
    gpu::with_half_type(out.dtype, [&]<class T>(gpu::ElementType<T>) {
      unpack_rows(context, weight, segment, first, out.rows(), reinterpret_cast<T*>(out.data));
    });
  }
}

bool unpacked_fits(const DeviceTraits& traits, const LinearArgs& args) {
  return blocks_fit(traits, args) && !traits.batch_invariant;
}

void run_unpacked(OpContext& context, const LinearArgs& args) {
  const LinearWeight& weight = *args.weight;
  const Workspace::Mark mark(context.workspace);
  std::byte* const scratch = context.workspace.take(unpacked_bytes(weight));
  const int64_t rows_max = unpacked_rows(weight), y_size = dtype_info(args.y.dtype).block_bytes;
  for (const LinearWeight::Segment& segment : weight.segments()) {
    const int64_t end = segment.first_row + segment.row_count;
    for (int64_t first = segment.first_row; first < end; first += rows_max) {
      const int64_t count = std::min(rows_max, end - first);
      const TensorView matrix(scratch, args.x.dtype, Shape{count, weight.k()});
      unpack_block_rows(context, weight, first, matrix);
      const LinearWeight part = LinearWeight::matrix_at(context.device, matrix);
      LinearArgs product = args;
      product.weight = &part;
      product.bias = args.bias == nullptr ? nullptr : args.bias + first;
      product.y = {args.y.data + first * y_size, args.y.dtype, Shape{args.y.rows(), count},
                   args.y.row_stride};
      // These two read no weight before the kernels before them have ended.
      if (linear_library_fits(context.device.traits(), product)) {
        run_linear_library(context, product);
      } else {
        note_fallback(context.device, "linear/cuda/any", op_cost(product));
        run_linear_any(context, product);
      }
    }
  }
}

}  // namespace headrace
