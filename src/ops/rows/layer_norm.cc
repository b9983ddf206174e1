#include "ops/rows/layer_norm.h"

namespace headrace {
namespace {

void check_args(const LayerNormArgs& args) {
  CHECK(args.x.shape.rank() == 2);
  CHECK(args.weight != nullptr && args.bias != nullptr);
  CHECK(args.groups >= 1 && args.x.columns() % args.groups == 0);
  CHECK(args.out.shape == args.x.shape && args.out.dtype == args.x.dtype);
  if (args.residual.data != nullptr) {
    CHECK(args.residual.shape == args.x.shape && args.residual.dtype == args.x.dtype);
  }
}

}  // namespace

const KernelSet<LayerNormArgs>& layer_norm_kernels() {
  static const KernelSet<LayerNormArgs> set({layer_norm_cuda_kernels(), layer_norm_cpu_kernels()});
  return set;
}

OpCost op_cost(const LayerNormArgs& args) {
  const bool adds = args.residual.data != nullptr;
  return row_op_cost(
      args.x.rows(), args.x.columns(),
      bytes_of(args.x) * (adds ? 2 : 1) + bytes_of(args.residual) + bytes_of(args.out));
}

void layer_norm(OpContext& context, const LayerNormArgs& args) {
  check_args(args);
  if (args.x.rows() == 0) return;
  run_op(context, layer_norm_kernels(), args);
}

}  // namespace headrace
