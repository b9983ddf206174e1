#include "ops/states/kimi_delta.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const KimiDeltaArgs& args) {
  const int64_t rows = args.out.rows(), columns = args.heads.columns();
  CHECK(columns > 0 && (args.out.shape == Shape{rows, columns}));
  CHECK((args.qkv.shape == Shape{rows, 3 * columns}) && args.z.shape == args.out.shape);
  CHECK(args.forget.shape == args.out.shape && (args.beta.shape == Shape{rows, args.heads.count}));
  CHECK(args.forget.dtype == DType::kF32 && args.beta.dtype == DType::kF32);
  CHECK(args.z.dtype == args.qkv.dtype && args.out.dtype == args.qkv.dtype);
  for (const StateSequence& sequence : args.states.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= rows);
  }
}

}  // namespace

const KernelSet<KimiDeltaArgs>& kimi_delta_kernels() {
  static const KernelSet<KimiDeltaArgs> set({kimi_delta_cuda_kernels(), kimi_delta_cpu_kernels()});
  return set;
}

// As delta_rule's.
OpCost op_cost(const KimiDeltaArgs& args) {
  const auto sequences = static_cast<int64_t>(args.states.sequences.size());
  const int64_t state = args.heads.state_bytes();
  OpCost cost = row_op_cost(args.out.rows(), args.heads.columns(),
                            2 * sequences * state + bytes_of(args.qkv) + bytes_of(args.forget) +
                                bytes_of(args.z) + bytes_of(args.out));
  cost.flops = 6 * args.out.rows() * (state / 4);
  cost.shape = fmt::format("{} heads of {}", args.heads.count, args.heads.dim);
  return cost;
}

void kimi_delta(OpContext& context, const KimiDeltaArgs& args) {
  check_args(args);
  if (args.states.empty()) return;
  run_op(context, kimi_delta_kernels(), args);
}

}  // namespace headrace
