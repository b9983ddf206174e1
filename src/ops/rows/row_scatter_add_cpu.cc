#include <array>

#include "ops/rows/row_scatter_add.h"

namespace headrace {
namespace {

// 16 rows of 2048 columns take about 10 us: fewer are not worth a fork-join.
void reference(OpContext& context, const RowScatterAddArgs& args) {
  const auto count = static_cast<int64_t>(args.rows.size());
  context.device.pool().parallel_for(count, 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int32_t row = args.rows[static_cast<size_t>(i)];
      CHECK(row >= 0 && row < args.out.rows());
      const float scale = args.scales[static_cast<size_t>(i)];
      const float* x = f32_row(args.x, i);  // [D]
      float* out = f32_row(args.out, row);  // [D]
      for (int64_t c = 0; c < args.x.columns(); ++c) out[c] += scale * x[c];
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const RowScatterAddArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kRowScatterAddKernels = {
    Kernel<RowScatterAddArgs>{"row_scatter_add/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<RowScatterAddArgs> row_scatter_add_cpu_kernels() { return kRowScatterAddKernels; }

}  // namespace headrace
