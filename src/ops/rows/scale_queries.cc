#include "ops/rows/scale_queries.h"

namespace headrace {
namespace {

void check_args(const OpContext& context, const ScaleQueriesArgs& args) {
  CHECK(args.x.shape.rank() == 2 && is_activation(context.device, args.x.dtype));
  if (args.temperature.scale != 0) {
    CHECK(args.temperature.step > 0);
    CHECK(static_cast<int64_t>(args.positions.size()) == args.x.rows());
  }
  if (args.weights != nullptr) {
    CHECK(args.head_dim > 0 && args.x.columns() % args.head_dim == 0);
  }
}

}  // namespace

const KernelSet<ScaleQueriesArgs>& scale_queries_kernels() {
  static const KernelSet<ScaleQueriesArgs> set(
      {scale_queries_cuda_kernels(), scale_queries_cpu_kernels()});
  return set;
}

OpCost op_cost(const ScaleQueriesArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), 2 * bytes_of(args.x));
}

void scale_queries(OpContext& context, const ScaleQueriesArgs& args) {
  check_args(context, args);
  if (args.x.rows() == 0 || (args.temperature.scale == 0 && args.weights == nullptr)) return;
  run_op(context, scale_queries_kernels(), args);
}

}  // namespace headrace
