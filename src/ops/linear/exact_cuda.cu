#include <type_traits>

#include "ops/linear/exact.cuh"
#include "ops/linear/exact.h"

namespace headrace {
namespace {

// From so many rows on, tiles of 64 x 32, which read x and W from the L2 cache less often.
constexpr int64_t kWideExactRows = 512;

template <class Body>
void with_exact_type(const LinearArgs& args, const Body& body) {
  const auto make = [&]<class T>(gpu::ElementType<T>) {
    body(gpu::ExactArguments<T>{.x = gpu::rows_of<T>(args.x),
                                .weight = gpu::rows_of<float>(args.weight->matrix()),
                                .bias = args.bias,
                                .y = gpu::rows_of<float>(args.y),
                                .m = static_cast<int32_t>(args.x.rows()),
                                .n = static_cast<int32_t>(args.weight->n()),
                                .k = static_cast<int32_t>(args.weight->k())});
  };
  if (args.x.dtype == DType::kF16) return make(gpu::ElementType<__half>());
  make(gpu::ElementType<__nv_bfloat16>());
}

template <int kRowTiles, int kColumnTiles, int kAhead, class T>
void launch_exact(OpContext& context, const gpu::ExactArguments<T>& args) {
  const dim3 blocks(gpu::blocks_for(args.n, 8 * kColumnTiles),
                    gpu::blocks_for(args.m, 16 * kRowTiles));
  gpu::launch(context, gpu::exact_products<T, kRowTiles, kColumnTiles, kAhead>, blocks,
              gpu::kExactThreads, args);
}

}  // namespace

bool exact_any_fits(const DeviceTraits& traits, const LinearArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.output == LinearOutput::kStore &&
         (args.x.dtype == DType::kF16 || args.x.dtype == DType::kBF16) &&
         args.y.dtype == DType::kF32 && args.weight->is_matrix_of(DType::kF32);
}

bool exact_fits(const DeviceTraits& traits, const LinearArgs& args) {
  // The copy of a row of x is 8 bytes a lane.
  return exact_any_fits(traits, args) && traits.compute_capability >= 80 &&
         args.weight->k() % 4 == 0 && gpu::rows_aligned(args.x) &&
         gpu::rows_aligned(args.weight->matrix());
}

void run_exact(OpContext& context, const LinearArgs& args) {
  with_exact_type(args, [&]<class T>(const gpu::ExactArguments<T>& arguments) {
    if (args.x.rows() >= kWideExactRows) return launch_exact<4, 4, 1>(context, arguments);
    launch_exact<1, 1, 8>(context, arguments);
  });
}

bool exact_few_fits(const DeviceTraits& traits, const LinearArgs& args) {
  return exact_fits(traits, args) && !traits.batch_invariant && args.x.rows() <= gpu::kExactFewRows;
}

void run_exact_few(OpContext& context, const LinearArgs& args) {
  with_exact_type(args, [&]<class T>(const gpu::ExactArguments<T>& arguments) {
    const auto launch = [&]<int kRows>(std::integral_constant<int, kRows>) {
      gpu::launch(context, gpu::exact_few<T, kRows>, static_cast<unsigned>(arguments.n),
                  gpu::kExactThreads, arguments);
    };
    switch (arguments.m) {
      case 1:
        return launch(std::integral_constant<int, 1>());
      case 2:
        return launch(std::integral_constant<int, 2>());
      case 3:
        return launch(std::integral_constant<int, 3>());
      default:
        return launch(std::integral_constant<int, 4>());
    }
  });
}

void run_exact_any(OpContext& context, const LinearArgs& args) {
  with_exact_type(args, [&]<class T>(const gpu::ExactArguments<T>& arguments) {
    gpu::launch(context, gpu::exact_elements<T>,
                gpu::blocks_for(int64_t{arguments.m} * arguments.n, gpu::kExactWarps),
                gpu::kExactThreads, arguments);
  });
}

}  // namespace headrace
