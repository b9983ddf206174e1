#include "ops/linear/few_rows.cuh"

#include "ops/linear/plain.h"

namespace headrace {
namespace {

// Measured on an H200 (docs/kernels/notebook/linear.md): with more rows, or more weights than
// these, the library is ahead; of 4096 x 4096 inside a step, though not alone.
constexpr int kFewRowsMax = 8;
constexpr int64_t kFewElementsMax = 2048 * 2048;

template <int kColumnTiles, class T, class Y>
void launch_few_rows(OpContext& context, const gpu::PlainArguments<T, Y>& args) {
  // Two row tiles read x half as often; one gives enough blocks for a narrow W.
  const bool narrow = args.n < 32 * 2 * context.device.traits().sm_count;
  if (narrow) {
    gpu::launch(context, gpu::few_rows<T, Y, kColumnTiles, 1>, gpu::blocks_for(args.n, 16),
                gpu::kFewThreads, args);
  } else {
    gpu::launch(context, gpu::few_rows<T, Y, kColumnTiles, 2>, gpu::blocks_for(args.n, 32),
                gpu::kFewThreads, args);
  }
}

}  // namespace

bool few_rows_pays(const DeviceTraits& traits, const LinearArgs& args) {
  return !traits.batch_invariant && gpu::plain_types(traits, args) && gpu::plain_aligned(args) &&
         args.x.dtype != DType::kF32 && args.x.rows() <= kFewRowsMax &&
         args.weight->k() % gpu::kFewSpan == 0 &&
         args.weight->n() * args.weight->k() <= kFewElementsMax;
}

void run_few_rows(OpContext& context, const LinearArgs& args) {
  gpu::with_plain_types(args, [&]<class T, class Y>(const gpu::PlainArguments<T, Y>& arguments) {
    if constexpr (sizeof(T) == 2) {
      launch_few_rows<1>(context, arguments);
    }
  });
}

}  // namespace headrace
