#include "ops/linear.h"

#include "ops/linear_cpu.h"

namespace headrace {
namespace {

bool on_cpu(const DeviceTraits& traits, const LinearArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr Kernel<LinearArgs> kKernels[] = {
    {"linear/cpu/reference", on_cpu, linear_cpu_reference},
};
constexpr KernelSet<LinearArgs> kKernelSet{kKernels};

void check_shapes(const LinearArgs& args) {
  CHECK(args.weight != nullptr && args.weight->n() > 0);
  CHECK(args.x.dtype == DType::kF32 && args.x.shape.rank() == 2);
  CHECK(args.y.dtype == DType::kF32 && args.y.shape.rank() == 2);
  CHECK(args.x.columns() == args.weight->k());
  CHECK(args.y.columns() == args.weight->n());
  CHECK(args.x.rows() == args.y.rows());
  CHECK(args.x.row_stride % 4 == 0 && args.y.row_stride % 4 == 0);
}

}  // namespace

const KernelSet<LinearArgs>& linear_kernels() { return kKernelSet; }

int64_t linear_workspace_bytes(int64_t m, const LinearWeight& weight) {
  return m * weight.k() * 8 + weight.k() * 4 + 1024;
}

void linear(OpContext& context, const LinearArgs& args) {
  check_shapes(args);
  if (args.x.rows() == 0) return;
  kKernelSet.select(context.device, args).run(context, args);
}

}  // namespace headrace
