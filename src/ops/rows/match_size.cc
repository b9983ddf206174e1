#include "ops/rows/match_size.h"

namespace headrace {
namespace {

void check_args(const OpContext& context, const MatchSizeArgs& args) {
  CHECK(args.x.shape.rank() == 2 && is_activation(context.device, args.x.dtype));
  CHECK(args.like.shape == args.x.shape && args.like.dtype == args.x.dtype);
  CHECK(args.out.shape == args.x.shape && args.out.dtype == args.x.dtype);
}

}  // namespace

const KernelSet<MatchSizeArgs>& match_size_kernels() {
  static const KernelSet<MatchSizeArgs> set({match_size_cuda_kernels(), match_size_cpu_kernels()});
  return set;
}

OpCost op_cost(const MatchSizeArgs& args) {
  return row_op_cost(
      args.x.rows(), args.x.columns(),
      bytes_of(args.x) + bytes_of(args.like) + (args.adds ? 2 : 1) * bytes_of(args.out));
}

void match_size(OpContext& context, const MatchSizeArgs& args) {
  check_args(context, args);
  if (args.x.rows() == 0) return;
  run_op(context, match_size_kernels(), args);
}

}  // namespace headrace
