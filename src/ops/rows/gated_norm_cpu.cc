#include <array>
#include <cmath>

#include "ops/rows/gated_norm.h"
#include "ops/rows/gated_norm_row.h"

namespace headrace {
namespace {

double silu(double x) { return x / (1.0 + std::exp(-x)); }

void reference_row(const GatedNormRow& row) {
  double squares = 0;
  for (int64_t i = 0; i < row.columns; ++i) {
    double y = row.x[i];
    if (row.gate_first) y *= silu(double{row.gate_scale} * row.gate[i]);
    squares += y * y;
  }
  const double rms = std::sqrt(squares / static_cast<double>(row.columns) + row.eps);
  for (int64_t i = 0; i < row.columns; ++i) {
    const double gated = row.x[i] * silu(double{row.gate_scale} * row.gate[i]);
    row.x[i] = static_cast<float>(gated / (row.normalises ? rms : 1.0) * row.weight[i]);
  }
}

// A row of 2048 columns takes about 2 us: fewer than four are not worth a fork-join.
template <void (*kRow)(const GatedNormRow&)>
void run_rows(OpContext& context, const GatedNormArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 4, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      for (int64_t column = 0; column < args.x.columns(); column += args.group) {
        kRow({.x = f32_row(args.x, t) + column,
              .gate = f32_row(args.gate, t) + column,
              .weight = args.weight + column,
              .columns = args.group,
              .eps = args.eps,
              .gate_scale = args.gate_scale,
              .normalises = args.norm != GatedNorm::kNone,
              .gate_first = args.norm == GatedNorm::kBehindGate});
      }
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const GatedNormArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const GatedNormArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const GatedNormArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kGatedNormKernels = {
    Kernel<GatedNormArgs>{"gated_norm/cpu/avx512", avx512, run_rows<gated_norm_row_avx512>},
    Kernel<GatedNormArgs>{"gated_norm/cpu/avx2", avx2, run_rows<gated_norm_row_avx2>},
    Kernel<GatedNormArgs>{"gated_norm/cpu/reference", any_cpu, run_rows<reference_row>},
};

}  // namespace

KernelTable<GatedNormArgs> gated_norm_cpu_kernels() { return kGatedNormKernels; }

}  // namespace headrace
