#include "ops/sampling/spread_logits.h"

namespace headrace {
namespace {

void check_args(const SpreadLogitsArgs& args) {
  CHECK(args.logits.dtype == DType::kF32 && args.all.dtype == DType::kF32);
  CHECK(args.logits.rows() == args.all.rows() && args.logits.columns() <= args.all.columns());
}

}  // namespace

const KernelSet<SpreadLogitsArgs>& spread_logits_kernels() {
  static const KernelSet<SpreadLogitsArgs> set(
      {spread_logits_cuda_kernels(), spread_logits_cpu_kernels(), spread_logits_null_kernels()});
  return set;
}

OpCost op_cost(const SpreadLogitsArgs& args) {
  return row_op_cost(args.all.rows(), args.all.columns(),
                     bytes_of(args.all) + bytes_of(args.logits));
}

void spread_logits(OpContext& context, const SpreadLogitsArgs& args) {
  check_args(args);
  if (args.all.rows() == 0) return;
  run_op(context, spread_logits_kernels(), args);
}

}  // namespace headrace
