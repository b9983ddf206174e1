#include "ops/rows/rms_norm.h"

namespace headrace {
namespace {

void check_args(const RmsNormArgs& args) {
  CHECK(args.x.shape.rank() == 2);
  CHECK(args.weight != nullptr);
  CHECK(args.groups >= 1 && args.x.columns() % args.groups == 0);
  CHECK(args.out.shape == args.x.shape && args.out.dtype == args.x.dtype);
  if (args.residual.data != nullptr) {
    CHECK(args.residual.shape == args.x.shape && args.residual.dtype == args.x.dtype);
  }
}

}  // namespace

const KernelSet<RmsNormArgs>& rms_norm_kernels() {
  static const KernelSet<RmsNormArgs> set({rms_norm_cuda_kernels(), rms_norm_cpu_kernels()});
  return set;
}

OpCost op_cost(const RmsNormArgs& args) {
  const bool adds = args.residual.data != nullptr;
  return row_op_cost(
      args.x.rows(), args.x.columns(),
      bytes_of(args.x) * (adds ? 2 : 1) + bytes_of(args.residual) + bytes_of(args.out));
}

void rms_norm(OpContext& context, const RmsNormArgs& args) {
  check_args(args);
  if (args.x.rows() == 0) return;
  run_op(context, rms_norm_kernels(), args);
}

}  // namespace headrace
