#include "ops/sampling/device_sample.h"

namespace headrace {

const KernelSet<DeviceSampleArgs>& device_sample_kernels() {
  static const KernelSet<DeviceSampleArgs> set(
      {device_sample_cuda_kernels(), device_sample_null_kernels()});
  return set;
}

OpCost op_cost(const DeviceSampleArgs& args) {
  return row_op_cost(args.logits.rows(), args.logits.columns(), bytes_of(args.logits));
}

void device_sample(OpContext& context, const DeviceSampleArgs& args) {
  CHECK(args.logits.dtype == DType::kF32 || args.logits.dtype == DType::kBF16);
  CHECK(args.logits.shape.rank() == 2);
  CHECK(args.logits.columns() > 0);
  if (args.logits.rows() == 0) return;
  run_op(context, device_sample_kernels(), args);
}

}  // namespace headrace
