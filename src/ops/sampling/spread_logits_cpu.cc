#include <algorithm>
#include <array>
#include <limits>

#include "ops/sampling/spread_logits.h"

namespace headrace {
namespace {

void reference(OpContext&, const SpreadLogitsArgs& args) {
  for (int64_t row = 0; row < args.all.rows(); ++row) {
    float* const to = f32_row(args.all, row);
    const float* const from = f32_row(args.logits, row);
    std::fill_n(to, args.all.columns(), -std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < args.logits.columns(); ++i) {
      to[args.ids == nullptr ? i : args.ids[i]] = from[i];
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const SpreadLogitsArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kSpreadLogitsKernels = {
    Kernel<SpreadLogitsArgs>{"spread_logits/cpu/reference", any_cpu, reference}};

}  // namespace

KernelTable<SpreadLogitsArgs> spread_logits_cpu_kernels() { return kSpreadLogitsKernels; }

}  // namespace headrace
