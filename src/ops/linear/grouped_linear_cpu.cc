// The definition of grouped_linear, for the tests of other kernels: mixtures on a CPU multiply
// expert by expert (models/parts/mixture_feed_forward.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/linear/grouped_linear.h"
#include "ops/rows/activation.h"

namespace headrace {
namespace {

void multiply_listed(const GroupedLinearArgs& args, int64_t expert, int64_t i,
                     const std::vector<float>& matrix) {
  const int64_t row = args.rows.empty() ? i : args.rows[static_cast<size_t>(i)];
  CHECK(row >= 0 && row < args.x.rows());
  const int64_t n = args.expert_rows(), k = args.weight->k();
  const float* const x = f32_row(args.x, row);  // [K]
  std::vector<double> sums(static_cast<size_t>(n));
  for (int64_t r = 0; r < n; ++r) {
    const float* const weight = &matrix[static_cast<size_t>(r * k)];
    double& sum = sums[static_cast<size_t>(r)];
    if (args.bias != nullptr) sum = args.bias[expert * n + r];
    for (int64_t c = 0; c < k; ++c) sum += double{weight[c]} * x[c];
  }
  float* const y = f32_row(args.y, i);
  for (int64_t c = 0; c < args.y.columns(); ++c) {
    double value = sums[static_cast<size_t>(c)];
    if (args.gate) {
      value = activated(*args.gate, value) *
              activated_up(*args.gate, sums[static_cast<size_t>(c + n / 2)]);
    }
    y[c] = static_cast<float>(value);
  }
}

// Plain loops, sums in double.
void multiply_plainly(OpContext&, const GroupedLinearArgs& args) {
  const int64_t n = args.expert_rows(), k = args.weight->k();
  std::vector<float> matrix(static_cast<size_t>(n * k));
  for (int64_t e = 0; e < args.experts(); ++e) {
    const int32_t first = args.starts[static_cast<size_t>(e)];
    const int32_t last = args.starts[static_cast<size_t>(e) + 1];
    if (first == last) continue;
    for (int64_t r = 0; r < n; ++r) {
      args.weight->read_row(e * n + r, &matrix[static_cast<size_t>(r * k)]);
    }
    for (int32_t i = first; i < last; ++i) multiply_listed(args, e, i, matrix);
  }
}

bool groups_on_cpu(const DeviceTraits& traits, const GroupedLinearArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kGroupedCpu = {
    Kernel<GroupedLinearArgs>{"grouped_linear/cpu/reference", groups_on_cpu, multiply_plainly}};

}  // namespace

KernelTable<GroupedLinearArgs> grouped_linear_cpu_kernels() { return kGroupedCpu; }

}  // namespace headrace
