#include "ops/states/selective_scan.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const SelectiveScanArgs& args) {
  const Shape& shape = args.out.shape;
  const int64_t rows = args.out.rows();
  CHECK(args.x.shape == shape && args.z.shape == shape && args.dt.shape == shape);
  CHECK(args.x.dtype == args.out.dtype && args.z.dtype == args.out.dtype);
  CHECK(args.dt.dtype == DType::kF32 && args.b.dtype == DType::kF32 && args.c.dtype == DType::kF32);
  CHECK((args.b.shape == Shape{rows, args.state_dim}) && args.c.shape == args.b.shape);
  for (const StateSequence& sequence : args.states.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= rows);
  }
}

}  // namespace

const KernelSet<SelectiveScanArgs>& selective_scan_kernels() {
  static const KernelSet<SelectiveScanArgs> set(
      {selective_scan_cuda_kernels(), selective_scan_cpu_kernels()});
  return set;
}

// Of each number of a state and row: an exponential, counted as one, and five more operations.
OpCost op_cost(const SelectiveScanArgs& args) {
  const auto sequences = static_cast<int64_t>(args.states.sequences.size());
  const int64_t channels = args.out.columns();
  const int64_t state = selective_scan_state_bytes(args.state_dim, channels);
  OpCost cost = row_op_cost(args.out.rows(), channels,
                            (2 * sequences + 1) * state + bytes_of(args.x) + bytes_of(args.z) +
                                bytes_of(args.dt) + bytes_of(args.out));
  cost.flops = 6 * args.out.rows() * (state / 4);
  cost.shape = fmt::format("{} channels of {}", channels, args.state_dim);
  return cost;
}

void selective_scan(OpContext& context, const SelectiveScanArgs& args) {
  check_args(args);
  if (args.states.empty()) return;
  run_op(context, selective_scan_kernels(), args);
}

}  // namespace headrace
