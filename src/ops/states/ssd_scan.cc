#include "ops/states/ssd_scan.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const SsdScanArgs& args) {
  const SsdHeads& heads = args.heads;
  const int64_t rows = args.out.rows();
  CHECK(heads.groups > 0 && heads.heads % heads.groups == 0);
  CHECK((args.out.shape == Shape{rows, heads.values()}));
  CHECK((args.xbc.shape == Shape{rows, heads.xbc()}));
  CHECK((args.dt.shape == Shape{rows, 2 * heads.heads}));
  CHECK(args.dt.dtype == DType::kF32 && args.out.dtype == args.xbc.dtype);
  for (const StateSequence& sequence : args.states.sequences) {
    CHECK(sequence.row_first >= 0 && sequence.row_count > 0 &&
          sequence.row_first + sequence.row_count <= rows);
  }
}

}  // namespace

const KernelSet<SsdScanArgs>& ssd_scan_kernels() {
  static const KernelSet<SsdScanArgs> set({ssd_scan_cuda_kernels(), ssd_scan_cpu_kernels()});
  return set;
}

// Five operations for each number of a state and row: the new state, and the sum over it.
OpCost op_cost(const SsdScanArgs& args) {
  const auto sequences = static_cast<int64_t>(args.states.sequences.size());
  const int64_t state = args.heads.state_bytes();
  OpCost cost = row_op_cost(
      args.out.rows(), args.heads.values(),
      2 * sequences * state + bytes_of(args.xbc) + bytes_of(args.dt) + bytes_of(args.out));
  cost.flops = 5 * args.out.rows() * (state / 4);
  cost.shape = fmt::format("{} heads of {} x {}", args.heads.heads, args.heads.head_dim,
                           args.heads.state_dim);
  return cost;
}

void ssd_scan(OpContext& context, const SsdScanArgs& args) {
  check_args(args);
  if (args.states.empty()) return;
  run_op(context, ssd_scan_kernels(), args);
}

}  // namespace headrace
