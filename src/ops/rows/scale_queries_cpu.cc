#include <array>
#include <cmath>

#include "ops/rows/scale_queries.h"

namespace headrace {
namespace {

float factor_of(const QueryTemperature& rule, int32_t position) {
  const int32_t steps = (position + rule.offset) / rule.step;
  if (rule.smooth && steps > 0) {
    const float share = static_cast<float>(position + rule.offset) / static_cast<float>(rule.step);
    return 1.0f + rule.scale * std::log(share);
  }
  return steps == 0 ? 1.0f : 1.0f + rule.scale * std::log(1.0f + static_cast<float>(steps));
}

void scale_query_row(const ScaleQueriesArgs& args, int64_t t) {
  float factor = 1.0f;
  if (args.temperature.scale != 0) {
    factor = factor_of(args.temperature, args.positions[static_cast<size_t>(t)]);
  }
  float* const row = f32_row(args.x, t);  // [Hq d]
  if (args.weights == nullptr) {
    if (factor == 1.0f) return;
    for (int64_t i = 0; i < args.x.columns(); ++i) row[i] *= factor;
    return;
  }
  for (int64_t first = 0; first < args.x.columns(); first += args.head_dim) {
    for (int64_t i = 0; i < args.head_dim; ++i) row[first + i] *= factor * args.weights[i];
  }
}

// Eight rows of 4,096 columns take some 10 us: fewer are not worth a fork-join.
void reference(OpContext& context, const ScaleQueriesArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) scale_query_row(args, t);
  });
}

bool any_cpu(const DeviceTraits& traits, const ScaleQueriesArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.x.dtype == DType::kF32;
}

constexpr std::array kScaleQueriesKernels = {
    Kernel<ScaleQueriesArgs>{"scale_queries/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<ScaleQueriesArgs> scale_queries_cpu_kernels() { return kScaleQueriesKernels; }

}  // namespace headrace
