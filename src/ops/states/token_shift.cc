#include "ops/states/token_shift.h"

namespace headrace {
namespace {

void check_args(const TokenShiftArgs& args) {
  const int64_t rows = args.out.rows();
  CHECK(args.mixes > 0 && (args.out.shape == Shape{rows, args.mixes * args.x.columns()}));
  CHECK(args.x.rows() == rows);
  CHECK(args.x.dtype == args.out.dtype);
  for (const StateSequence& sequence : args.states.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= rows);
  }
}

}  // namespace

const KernelSet<TokenShiftArgs>& token_shift_kernels() {
  static const KernelSet<TokenShiftArgs> set(
      {token_shift_cuda_kernels(), token_shift_cpu_kernels()});
  return set;
}

OpCost op_cost(const TokenShiftArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), bytes_of(args.x) + bytes_of(args.out));
}

void token_shift(OpContext& context, const TokenShiftArgs& args) {
  check_args(args);
  if (args.states.empty()) return;
  run_op(context, token_shift_kernels(), args);
}

}  // namespace headrace
