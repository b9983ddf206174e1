#include <array>
#include <cmath>

#include "ops/rows/layer_norm.h"
#include "ops/rows/layer_norm_rows.h"

namespace headrace {
namespace {

void normalise_row(const LayerNormArgs& args, int64_t t, int64_t group) {
  const int64_t columns = args.x.columns() / args.groups, from = group * columns;
  float* x = f32_row(args.x, t) + from;      // [D / groups], as all here
  float* out = f32_row(args.out, t) + from;  //
  const float* const weight = args.weight + from;
  const float* const bias = args.bias + from;
  if (args.residual.data != nullptr) {
    const float* residual = f32_row(args.residual, t) + from;
    for (int64_t i = 0; i < columns; ++i) x[i] = std::fma(residual[i], args.residual_scale, x[i]);
  }
  double sum = 0.0;
  for (int64_t i = 0; i < columns; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(columns);
  double squares = 0.0;
  for (int64_t i = 0; i < columns; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(columns) + args.eps);
  for (int64_t i = 0; i < columns; ++i) {
    out[i] = static_cast<float>((x[i] - mean) * factor * weight[i] + bias[i]);
  }
}

// A group of rows [first, last) of the arguments as the kernels for one instruction set take them.
LayerNormRows rows_of(const LayerNormArgs& args, int64_t first, int64_t last, int64_t group) {
  const bool adds = args.residual.data != nullptr;
  const int64_t columns = args.x.columns() / args.groups, from = group * columns;
  return {.x = f32_row(args.x, first) + from,
          .residual = adds ? f32_row(args.residual, first) + from : nullptr,
          .weight = args.weight + from,
          .bias = args.bias + from,
          .out = f32_row(args.out, first) + from,
          .x_stride = args.x.row_stride / 4,
          .residual_stride = args.residual.row_stride / 4,
          .out_stride = args.out.row_stride / 4,
          .rows = last - first,
          .columns = columns,
          .eps = args.eps,
          .residual_scale = args.residual_scale};
}

// 16 rows of 576 columns take about 3 us: fewer are not worth a fork-join.
template <void (*kRows)(const LayerNormRows&)>
void run_rows(OpContext& context, const LayerNormArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 16, [&](int64_t first, int64_t last) {
    for (int64_t g = 0; g < args.groups; ++g) kRows(rows_of(args, first, last, g));
  });
}

// Four rows of 3072 columns take about 20 us: fewer are not worth a fork-join.
void reference(OpContext& context, const LayerNormArgs& args) {
  context.device.pool().parallel_for(args.x.rows(), 4, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      for (int64_t g = 0; g < args.groups; ++g) normalise_row(args, t, g);
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const LayerNormArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.x.dtype == DType::kF32;
}

bool avx512(const DeviceTraits& traits, const LayerNormArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const LayerNormArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kLayerNormKernels = {
    Kernel<LayerNormArgs>{"layer_norm/cpu/avx512", avx512, run_rows<layer_norm_rows_avx512>},
    Kernel<LayerNormArgs>{"layer_norm/cpu/avx2", avx2, run_rows<layer_norm_rows_avx2>},
    Kernel<LayerNormArgs>{"layer_norm/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<LayerNormArgs> layer_norm_cpu_kernels() { return kLayerNormKernels; }

}  // namespace headrace
