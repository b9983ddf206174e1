#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "ops/rows/cut_gates.h"

namespace headrace {
namespace {

void cut_row(std::span<float> row, float cutoff) {
  const auto count = static_cast<double>(row.size());
  double sum = 0, squares = 0;
  for (const float gate : row) sum += gate;
  const double mean = sum / count;
  for (const float gate : row) squares += (gate - mean) * (gate - mean);
  const auto least = static_cast<float>(mean + std::sqrt(squares / count) * double{cutoff});
  for (float& gate : row) gate = std::max(gate - least, 0.0f);
}

// Four rows of 8,192 gates take some 60 us: fewer are not worth a fork-join.
void reference(OpContext& context, const CutGatesArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 4, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      cut_row({f32_row(args.x, t), static_cast<size_t>(args.x.columns())}, args.cutoff);
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const CutGatesArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.x.dtype == DType::kF32;
}

constexpr std::array kCutGatesKernels = {
    Kernel<CutGatesArgs>{"cut_gates/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<CutGatesArgs> cut_gates_cpu_kernels() { return kCutGatesKernels; }

}  // namespace headrace
