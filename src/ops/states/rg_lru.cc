#include "ops/states/rg_lru.h"

namespace headrace {
namespace {

void check_args(const RgLruArgs& args) {
  const Shape& shape = args.out.shape;
  for (const ConstTensorView* rows : {&args.x, &args.gate}) {
    CHECK(rows->shape == shape && rows->dtype == args.out.dtype);
  }
  for (const ConstTensorView* rows : {&args.in, &args.forget}) {
    CHECK(rows->shape == shape && rows->dtype == DType::kF32);
  }
  for (const StateSequence& sequence : args.states.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= args.out.rows());
  }
}

}  // namespace

const KernelSet<RgLruArgs>& rg_lru_kernels() {
  static const KernelSet<RgLruArgs> set({rg_lru_cuda_kernels(), rg_lru_cpu_kernels()});
  return set;
}

OpCost op_cost(const RgLruArgs& args) {
  return row_op_cost(args.out.rows(), args.out.columns(), 5 * bytes_of(args.out));
}

void rg_lru(OpContext& context, const RgLruArgs& args) {
  check_args(args);
  if (args.states.empty()) return;
  run_op(context, rg_lru_kernels(), args);
}

}  // namespace headrace
