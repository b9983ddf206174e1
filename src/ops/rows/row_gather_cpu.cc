#include <array>
#include <cstring>

#include "ops/rows/row_gather.h"

namespace headrace {
namespace {

void reference(OpContext&, const RowGatherArgs& args) {
  const auto bytes = static_cast<size_t>(*row_bytes(args.x.dtype, args.x.columns()));
  for (int64_t i = 0; i < args.out.rows(); ++i) {
    const int64_t row = args.rows.empty() ? i : args.rows[static_cast<size_t>(i)];
    CHECK(row >= 0 && row < args.x.rows());
    std::memcpy(args.out.row(i), args.x.row(row), bytes);
    if (args.scales.empty()) continue;
    const float scale = args.scales[static_cast<size_t>(i)];
    float* const out = f32_row(args.out, i);  // [D]
    for (int64_t c = 0; c < args.out.columns(); ++c) out[c] *= scale;
  }
}

bool any_cpu(const DeviceTraits& traits, const RowGatherArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kRowGatherKernels = {
    Kernel<RowGatherArgs>{"row_gather/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<RowGatherArgs> row_gather_cpu_kernels() { return kRowGatherKernels; }

}  // namespace headrace
