#include "ops/linear/resident.cuh"

#include "ops/linear/resident.h"

namespace headrace {
namespace {

using gpu::ResidentArguments;

// More rows of W and of x are read too often.
constexpr int64_t kRowsMax = 256;
constexpr int64_t kOutputsMax = 8192;
// Measured on an H200 (docs/kernels/notebook/linear.md): the library is ahead with more.
constexpr int64_t kRowsThatPay = 64;
constexpr int64_t kElementsThatPay = 2 << 20;

template <class T>
ResidentArguments<T> arguments_of(const FusedLinearArgs& args, const ResidentPlan& plan) {
  const auto n = static_cast<int32_t>(args.weight->n());
  const bool gated = args.gate != nullptr;
  return {.x = gpu::rows_of<T>(args.x),
          .weight = gpu::rows_of<T>(args.weight->matrix()),
          .y = gpu::rows_of<T>(args.y),
          .norm = args.norm == nullptr ? nullptr : args.norm->weight,
          .bias = args.bias,
          .eps = args.norm == nullptr ? 0.0f : args.norm->eps,
          .m = static_cast<int32_t>(args.x.rows()),
          .n = n,
          .k = static_cast<int32_t>(args.weight->k()),
          .n_out = gated ? n / 2 : n,
          .second_half = gated ? n / 2 : plan.tile_columns / 2,
          .activation = gated ? *args.gate : Activation::kSilu,
          .gated = gated,
          .accumulates = args.output == LinearOutput::kAccumulate};
}

template <class T, int kRows, int kColumns, bool kNormed>
void launch(OpContext& context, const FusedLinearArgs& args, const ResidentPlan& plan) {
  gpu::check_launch(context.stream, gpu::launch_overlapped(
                                        gpu::linear_resident<T, kRows, kColumns, kNormed>,
                                        {.blocks = dim3(static_cast<unsigned>(plan.row_tiles),
                                                        static_cast<unsigned>(plan.column_tiles)),
                                         .threads = kResidentThreads,
                                         .shared_bytes = plan.shared_bytes},
                                        gpu::stream_of(context), arguments_of<T>(args, plan)));
}

template <class T, int kRows, bool kNormed>
void launch_columns(OpContext& context, const FusedLinearArgs& args, const ResidentPlan& plan) {
  if (plan.tile_columns == 16) return launch<T, kRows, 16, kNormed>(context, args, plan);
  if (plan.tile_columns == 32) return launch<T, kRows, 32, kNormed>(context, args, plan);
  CHECK(plan.tile_columns == 64);
  if constexpr (kRows * 64 <= kResidentTileMax) {
    launch<T, kRows, 64, kNormed>(context, args, plan);
  }
}

template <class T, bool kNormed>
void launch_plan(OpContext& context, const FusedLinearArgs& args) {
  const ResidentPlan plan = plan_resident(product_of(args), context.device.traits().sm_count);
  if (plan.tile_rows == 16) return launch_columns<T, 16, kNormed>(context, args, plan);
  if (plan.tile_rows == 32) return launch_columns<T, 32, kNormed>(context, args, plan);
  CHECK(plan.tile_rows == 64);
  launch_columns<T, 64, kNormed>(context, args, plan);
}

bool norm_fits(const FusedLinearArgs& args) {
  return args.norm == nullptr ||
         (args.x.dtype == DType::kBF16 && args.norm->residual.data == nullptr &&
          gpu::multiple_of_access(args.norm->weight));
}

}  // namespace

bool resident_fits(const DeviceTraits& traits, const FusedLinearArgs& args) {
  const DType dtype = args.x.dtype;
  const bool floats = dtype == DType::kBF16 || dtype == DType::kF16;
  return traits.kind == DeviceKind::kCuda && traits.compute_capability == 90 && floats &&
         args.weight->is_matrix_of(dtype) && args.y.dtype == dtype &&
         (traits.batch_invariant || args.x.rows() <= kRowsMax) && args.y.columns() <= kOutputsMax &&
         args.y.columns() % 2 == 0 && args.x.columns() % kResidentStep == 0 &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.weight->matrix()) &&
         gpu::rows_aligned(args.y) && norm_fits(args) &&
         plan_resident(product_of(args), traits.sm_count).tile_rows > 0;
}

bool resident_pays(const DeviceTraits& traits, const FusedLinearArgs& args) {
  return resident_fits(traits, args) && !traits.batch_invariant && args.x.rows() <= kRowsThatPay &&
         args.weight->n() * args.weight->k() <= kElementsThatPay;
}

void run_resident(OpContext& context, const FusedLinearArgs& args) {
  if (args.x.dtype == DType::kF16) return launch_plan<__half, false>(context, args);
  if (args.norm == nullptr) return launch_plan<__nv_bfloat16, false>(context, args);
  launch_plan<__nv_bfloat16, true>(context, args);
}

}  // namespace headrace
