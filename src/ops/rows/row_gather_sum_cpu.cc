#include <array>

#include "ops/rows/row_gather_sum.h"

namespace headrace {
namespace {

void reference(OpContext&, const RowGatherSumArgs& args) {
  const int64_t each = std::ssize(args.places) / args.out.rows();
  for (int64_t t = 0; t < args.out.rows(); ++t) {
    float* const out = f32_row(args.out, t);  // [D]
    for (int64_t c = 0; c < args.out.columns(); ++c) out[c] = 0.0f;
    for (int64_t j = t * each; j < (t + 1) * each; ++j) {
      const int32_t place = args.places[static_cast<size_t>(j)];
      CHECK(place < args.x.rows());
      if (place < 0) continue;
      const float scale = args.scales.empty() ? 1.0f : args.scales[static_cast<size_t>(place)];
      const float* const x = f32_row(args.x, place);  // [D]
      for (int64_t c = 0; c < args.out.columns(); ++c) out[c] += scale * x[c];
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const RowGatherSumArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kRowGatherSumKernels = {
    Kernel<RowGatherSumArgs>{"row_gather_sum/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<RowGatherSumArgs> row_gather_sum_cpu_kernels() { return kRowGatherSumKernels; }

}  // namespace headrace
