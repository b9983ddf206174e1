#include "ops/states/causal_conv.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const CausalConvArgs& args) {
  const Shape& shape = args.out.shape;
  CHECK(args.out.dtype == args.x.dtype && args.x.shape == shape);
  for (const ConstTensorView& gate : {args.before, args.behind}) {
    CHECK(gate.data == nullptr || (gate.dtype == args.x.dtype && gate.shape == shape));
  }
  CHECK(args.taps >= 2 && args.weight != nullptr);
  for (const StateSequence& sequence : args.states.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= args.out.rows());
  }
}

}  // namespace

const KernelSet<CausalConvArgs>& causal_conv_kernels() {
  static const KernelSet<CausalConvArgs> set(
      {causal_conv_cuda_kernels(), causal_conv_cpu_kernels()});
  return set;
}

OpCost op_cost(const CausalConvArgs& args) {
  const auto sequences = static_cast<int64_t>(args.states.sequences.size());
  OpCost cost = row_op_cost(
      args.out.rows(), args.out.columns(),
      bytes_of(args.x) + bytes_of(args.before) + bytes_of(args.behind) + bytes_of(args.out) +
          2 * sequences * causal_conv_state_bytes(args.taps, args.out.columns()));
  cost.shape = fmt::format("{} taps of {}", args.taps, args.out.columns());
  return cost;
}

void causal_conv(OpContext& context, const CausalConvArgs& args) {
  check_args(args);
  if (args.states.empty()) return;
  run_op(context, causal_conv_kernels(), args);
}

}  // namespace headrace
