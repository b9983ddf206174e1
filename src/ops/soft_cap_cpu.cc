#include <array>
#include <cmath>

#include "ops/soft_cap.h"

namespace headrace {
namespace {

// A row of 256,000 logits takes about 4 ms of std::tanh: each is worth a thread.
void reference(OpContext& context, const SoftCapArgs& args) {
  constexpr int64_t kGrain = 4096;
  const int64_t columns = args.x.columns();
  for (int64_t r = 0; r < args.x.rows(); ++r) {
    float* x = f32_row(args.x, r);  // [V]
    context.device.pool().parallel_for(columns, kGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) x[i] = args.cap * std::tanh(x[i] / args.cap);
    });
  }
}

bool any_cpu(const DeviceTraits& traits, const SoftCapArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kKernels = {
    Kernel<SoftCapArgs>{"soft_cap/cpu/reference", any_cpu, reference},
};

}  // namespace

std::span<const Kernel<SoftCapArgs>> soft_cap_cpu_kernels() { return kKernels; }

}  // namespace headrace
