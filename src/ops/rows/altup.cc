#include "ops/rows/altup.h"

namespace headrace {
namespace {

template <class Args>
void check_args(const OpContext& context, const Args& args) {
  const int64_t rows = args.streams.rows(), count = args.modes.columns();
  CHECK(args.streams.shape.rank() == 2 && is_activation(context.device, args.streams.dtype));
  CHECK(count >= 1 && count <= kAltUpStreamsMax && args.streams.columns() % count == 0);
  CHECK(args.modes.dtype == DType::kF32 && args.modes.rows() == rows);
  CHECK(args.active >= 0 && args.active < count && args.weights != nullptr);
  CHECK((args.x.shape == Shape{rows, args.streams.columns() / count}));
  CHECK(args.x.dtype == args.streams.dtype);
}

}  // namespace

const KernelSet<AltUpPredictArgs>& altup_predict_kernels() {
  static const KernelSet<AltUpPredictArgs> set(
      {altup_predict_cuda_kernels(), altup_predict_cpu_kernels()});
  return set;
}
const KernelSet<AltUpCorrectArgs>& altup_correct_kernels() {
  static const KernelSet<AltUpCorrectArgs> set(
      {altup_correct_cuda_kernels(), altup_correct_cpu_kernels()});
  return set;
}

OpCost op_cost(const AltUpPredictArgs& args) {
  return row_op_cost(args.x.rows(), args.streams.columns(),
                     2 * bytes_of(args.streams) + bytes_of(args.modes) + bytes_of(args.x));
}
OpCost op_cost(const AltUpCorrectArgs& args) {
  return row_op_cost(
      args.x.rows(), args.streams.columns(),
      2 * bytes_of(args.streams) + bytes_of(args.modes) + bytes_of(args.x) + bytes_of(args.out));
}

void altup_predict(OpContext& context, const AltUpPredictArgs& args) {
  check_args(context, args);
  if (args.x.rows() == 0) return;
  run_op(context, altup_predict_kernels(), args);
}

void altup_correct(OpContext& context, const AltUpCorrectArgs& args) {
  check_args(context, args);
  CHECK(args.out.shape == args.x.shape && args.out.dtype == args.x.dtype);
  if (args.x.rows() == 0) return;
  run_op(context, altup_correct_kernels(), args);
}

}  // namespace headrace
