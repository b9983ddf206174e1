#include "ops/rows/hyper_connection.h"

namespace headrace {

const KernelSet<HyperMixArgs>& hyper_mix_kernels() {
  static const KernelSet<HyperMixArgs> set({hyper_mix_cpu_kernels()});
  return set;
}
const KernelSet<HyperAddArgs>& hyper_add_kernels() {
  static const KernelSet<HyperAddArgs> set({hyper_add_cpu_kernels()});
  return set;
}

OpCost op_cost(const HyperMixArgs& args) {
  return row_op_cost(args.x.rows(), args.streams.columns(),
                     bytes_of(args.streams) + bytes_of(args.logits) + bytes_of(args.x));
}
OpCost op_cost(const HyperAddArgs& args) {
  return row_op_cost(args.x.rows(), args.streams.columns(),
                     2 * bytes_of(args.streams) + bytes_of(args.gates) + 2 * bytes_of(args.x));
}

void hyper_mix(OpContext& context, const HyperMixArgs& args) {
  const int64_t rows = args.x.rows(), streams = args.streams.columns() / args.x.columns();
  CHECK(streams >= 1 && streams <= kHyperStreamsMax);
  CHECK((args.streams.shape == Shape{rows, streams * args.x.columns()}));
  const bool mixes = args.mixes.data != nullptr;
  const int64_t parts = args.gates.data == nullptr ? 1 : 2;
  const int64_t of_matrix = mixes ? streams * streams : 0;
  CHECK((args.logits.shape == Shape{rows, parts * streams + of_matrix}));
  CHECK(args.gates.data == nullptr || (args.gates.shape == Shape{rows, streams}));
  CHECK(!mixes || (parts == 2 && (args.mixes.shape == Shape{rows, of_matrix})));
  if (rows > 0) run_op(context, hyper_mix_kernels(), args);
}

void hyper_add(OpContext& context, const HyperAddArgs& args) {
  const int64_t rows = args.x.rows(), streams = args.gates.columns();
  CHECK(streams >= 1 && streams <= kHyperStreamsMax && args.gates.rows() == rows);
  CHECK((args.streams.shape == Shape{rows, streams * args.x.columns()}));
  CHECK(args.before.shape == args.x.shape);
  CHECK(args.mixes.data == nullptr || (args.mixes.shape == Shape{rows, streams * streams}));
  if (rows > 0) run_op(context, hyper_add_kernels(), args);
}

}  // namespace headrace
