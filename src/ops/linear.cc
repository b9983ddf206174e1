#include "ops/linear.h"

#include "ops/linear_cpu.h"

namespace headrace {
namespace {

bool on_cpu(const DeviceTraits& traits, const LinearArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

bool on_avx2(const DeviceTraits& traits, const LinearArgs& args) {
  return on_cpu(traits, args) && traits.cpu.avx2;
}

bool on_avx512(const DeviceTraits& traits, const LinearArgs& args) {
  return on_cpu(traits, args) && traits.cpu.avx512;
}

bool on_avx512_vnni(const DeviceTraits& traits, const LinearArgs& args) {
  return on_avx512(traits, args) && traits.cpu.avx512_vnni;
}

template <const LinearCpuIsa& kIsa>
void tiled(OpContext& context, const LinearArgs& args) {
  linear_cpu_tiled(context, args, kIsa);
}

constexpr Kernel<LinearArgs> kKernels[] = {
    {"linear/cpu/avx512_vnni", on_avx512_vnni, tiled<kLinearAvx512Vnni>},
    {"linear/cpu/avx512", on_avx512, tiled<kLinearAvx512>},
    {"linear/cpu/avx2", on_avx2, tiled<kLinearAvx2>},
    {"linear/cpu/baseline", on_cpu, tiled<kLinearBaseline>},
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
  return linear_cpu_workspace_bytes(m, weight);
}

void linear(OpContext& context, const LinearArgs& args) {
  check_shapes(args);
  if (args.x.rows() == 0) return;
  kKernelSet.select(context.device, args).run(context, args);
}

}  // namespace headrace
