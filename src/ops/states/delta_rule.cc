#include "ops/states/delta_rule.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const DeltaRuleArgs& args) {
  const DeltaHeads& heads = args.heads;
  const int64_t rows = args.out.rows();
  CHECK(heads.key_heads > 0 && heads.value_heads % heads.key_heads == 0);
  CHECK((args.out.shape == Shape{rows, heads.values()}));
  CHECK((args.z.shape == Shape{rows, heads.values()}));
  CHECK((args.qkv.shape == Shape{rows, heads.qkv()}));
  CHECK((args.gates.shape == Shape{rows, 2 * heads.value_heads}));
  CHECK(args.gates.dtype == DType::kF32);
  CHECK(args.z.dtype == args.qkv.dtype && args.out.dtype == args.qkv.dtype);
  for (const StateSequence& sequence : args.states.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= rows);
  }
}

}  // namespace

const KernelSet<DeltaRuleArgs>& delta_rule_kernels() {
  static const KernelSet<DeltaRuleArgs> set({delta_rule_cuda_kernels(), delta_rule_cpu_kernels()});
  return set;
}

// Six operations for each number of a state and row: two sums, and the new state.
OpCost op_cost(const DeltaRuleArgs& args) {
  const auto sequences = static_cast<int64_t>(args.states.sequences.size());
  const int64_t state = args.heads.state_bytes();
  OpCost cost = row_op_cost(args.out.rows(), args.heads.values(),
                            2 * sequences * state + bytes_of(args.qkv) + bytes_of(args.gates) +
                                bytes_of(args.z) + bytes_of(args.out));
  cost.flops = 6 * args.out.rows() * (state / 4);
  cost.shape = fmt::format("{} heads of {} x {}", args.heads.value_heads, args.heads.key_dim,
                           args.heads.value_dim);
  return cost;
}

void delta_rule(OpContext& context, const DeltaRuleArgs& args) {
  check_args(args);
  if (args.states.empty()) return;
  run_op(context, delta_rule_kernels(), args);
}

}  // namespace headrace
