#include "ops/rows/rope_angles.h"

namespace headrace {
namespace {

void check_args(const RopeAnglesArgs& args) {
  const Shape shape{static_cast<int64_t>(args.positions.size()),
                    static_cast<int64_t>(args.inv_freq.size())};
  CHECK(args.cos.dtype == DType::kF32 && args.sin.dtype == DType::kF32);
  CHECK(args.cos.shape == shape && args.sin.shape == shape);
}

}  // namespace

const KernelSet<RopeAnglesArgs>& rope_angles_kernels() {
  static const KernelSet<RopeAnglesArgs> set(
      {rope_angles_cuda_kernels(), rope_angles_cpu_kernels()});
  return set;
}

OpCost op_cost(const RopeAnglesArgs& args) {
  return row_op_cost(args.cos.rows(), args.cos.columns(), bytes_of(args.cos) + bytes_of(args.sin));
}

void rope_angles(OpContext& context, const RopeAnglesArgs& args) {
  check_args(args);
  if (args.positions.empty() || args.inv_freq.empty()) return;
  run_op(context, rope_angles_kernels(), args);
}

}  // namespace headrace
