#include <algorithm>
#include <array>
#include <cmath>

#include "ops/rows/match_size.h"

namespace headrace {
namespace {

float root_mean_square(const float* row, int64_t columns, float least) {
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c) sum += double{row[c]} * row[c];
  return static_cast<float>(std::sqrt(std::max(sum / static_cast<double>(columns), double{least})));
}

void match_row(const MatchSizeArgs& args, int64_t t) {
  const int64_t columns = args.x.columns();
  const float* const x = f32_row(args.x, t);  // [D]
  float* const out = f32_row(args.out, t);    // [D]
  const float size = root_mean_square(f32_row(args.like, t), columns, 0.0f);
  const float own = root_mean_square(x, columns, args.least);
  for (int64_t c = 0; c < columns; ++c) {
    const float matched = x[c] * size / own;
    out[c] = args.adds ? out[c] + matched : matched;
  }
}

// Four rows of 2,048 columns take some 15 us: fewer are not worth a fork-join.
void reference(OpContext& context, const MatchSizeArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 4, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) match_row(args, t);
  });
}

bool any_cpu(const DeviceTraits& traits, const MatchSizeArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.x.dtype == DType::kF32;
}

constexpr std::array kMatchSizeKernels = {
    Kernel<MatchSizeArgs>{"match_size/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<MatchSizeArgs> match_size_cpu_kernels() { return kMatchSizeKernels; }

}  // namespace headrace
