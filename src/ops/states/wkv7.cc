#include "ops/states/wkv7.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const Wkv7Args& args) {
  const Shape shape{args.out.rows(), args.heads.channels()};
  const auto check_rows = [&](const ConstTensorView& rows, DType dtype) {
    CHECK(rows.shape == shape && rows.dtype == dtype);
  };
  CHECK(args.out.shape == shape);
  for (const ConstTensorView* rows : {&args.r, &args.k, &args.v, &args.g}) {
    check_rows(*rows, args.out.dtype);
  }
  for (const ConstTensorView* rows : {&args.w, &args.a}) check_rows(*rows, DType::kF32);
  CHECK((args.v_first.data == nullptr) == (args.v_gate.data == nullptr));
  if (args.v_first.data != nullptr) {
    CHECK(args.v0 != nullptr);
    for (const ConstTensorView* rows : {&args.v_first, &args.v_gate}) {
      check_rows(*rows, args.out.dtype);
    }
  }
  for (const StateSequence& sequence : args.states.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= args.out.rows());
  }
}

}  // namespace

const KernelSet<Wkv7Args>& wkv7_kernels() {
  static const KernelSet<Wkv7Args> set({wkv7_cuda_kernels(), wkv7_cpu_kernels()});
  return set;
}

// Nine operations for each number of a state and row: a sum, the new state, and a sum over it.
OpCost op_cost(const Wkv7Args& args) {
  const auto sequences = static_cast<int64_t>(args.states.sequences.size());
  const int64_t state = args.heads.state_bytes();
  OpCost cost = row_op_cost(args.out.rows(), args.heads.channels(),
                            2 * sequences * state + 7 * bytes_of(args.out) +
                                bytes_of(args.v_first) + bytes_of(args.v_gate));
  cost.flops = 9 * args.out.rows() * (state / 4);
  cost.shape = fmt::format("{} heads of {}", args.heads.heads, args.heads.head_dim);
  return cost;
}

void wkv7(OpContext& context, const Wkv7Args& args) {
  check_args(args);
  if (args.states.empty()) return;
  run_op(context, wkv7_kernels(), args);
}

}  // namespace headrace
