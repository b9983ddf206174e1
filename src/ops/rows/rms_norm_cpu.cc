#include <array>
#include <cmath>

#include "ops/rows/rms_norm.h"
#include "ops/rows/rms_norm_rows.h"

namespace headrace {
namespace {

void normalise_group(const RmsNormArgs& args, int64_t t, int64_t group) {
  const int64_t columns = args.x.columns() / args.groups, from = group * columns;
  float* x = f32_row(args.x, t) + from;      // [D / groups], as all here
  float* out = f32_row(args.out, t) + from;  //
  if (args.residual.data != nullptr) {
    const float* residual = f32_row(args.residual, t) + from;
    for (int64_t i = 0; i < columns; ++i) x[i] = std::fma(residual[i], args.residual_scale, x[i]);
  }
  double sum = 0.0;
  for (int64_t i = 0; i < columns; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double rms = std::sqrt(sum / static_cast<double>(columns) + args.eps);
  for (int64_t i = 0; i < columns; ++i) out[i] = static_cast<float>(x[i] / rms * args.weight[i]);
}

void reference(OpContext&, const RmsNormArgs& args) {
  for (int64_t t = 0; t < args.x.rows(); ++t) {
    for (int64_t g = 0; g < args.groups; ++g) normalise_group(args, t, g);
  }
}

// A group of rows [first, last) of the arguments as the kernels for one instruction set take them.
RmsNormRows rows_of(const RmsNormArgs& args, int64_t first, int64_t last, int64_t group) {
  const bool adds = args.residual.data != nullptr;
  const int64_t columns = args.x.columns() / args.groups, from = group * columns;
  return {.x = f32_row(args.x, first) + from,
          .residual = adds ? f32_row(args.residual, first) + from : nullptr,
          .weight = args.weight,
          .out = f32_row(args.out, first) + from,
          .x_stride = args.x.row_stride / 4,
          .residual_stride = args.residual.row_stride / 4,
          .out_stride = args.out.row_stride / 4,
          .rows = last - first,
          .columns = columns,
          .eps = args.eps,
          .residual_scale = args.residual_scale};
}

// 16 rows of 576 columns take about 2 us: fewer are not worth a fork-join.
template <void (*kRows)(const RmsNormRows&)>
void run_rows(OpContext& context, const RmsNormArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 16, [&](int64_t first, int64_t last) {
    for (int64_t g = 0; g < args.groups; ++g) kRows(rows_of(args, first, last, g));
  });
}

bool any_cpu(const DeviceTraits& traits, const RmsNormArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.x.dtype == DType::kF32;
}
bool avx512(const DeviceTraits& traits, const RmsNormArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const RmsNormArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kRmsNormKernels = {
    Kernel<RmsNormArgs>{"rms_norm/cpu/avx512", avx512, run_rows<rms_norm_rows_avx512>},
    Kernel<RmsNormArgs>{"rms_norm/cpu/avx2", avx2, run_rows<rms_norm_rows_avx2>},
    Kernel<RmsNormArgs>{"rms_norm/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<RmsNormArgs> rms_norm_cpu_kernels() { return kRmsNormKernels; }

}  // namespace headrace
