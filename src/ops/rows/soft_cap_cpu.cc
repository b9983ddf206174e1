#include <algorithm>
#include <array>
#include <cmath>

#include "ops/rows/soft_cap.h"
#include "ops/rows/soft_cap_row.h"

namespace headrace {
namespace {

double capped(CapKind kind, double x, double cap) {
  if (kind == CapKind::kSoft) return cap * std::tanh(x / cap);
  return std::min(kind == CapKind::kClamp ? std::max(x, -cap) : x, cap);
}

void reference(OpContext&, const SoftCapArgs& args) {
  for (int64_t r = 0; r < args.x.rows(); ++r) {
    float* x = f32_row(args.x, r);  // [V]
    for (int64_t i = 0; i < args.x.columns(); ++i) {
      const double cap = args.cap;
      x[i] = static_cast<float>(capped(args.kind, double{x[i]}, cap));
    }
  }
}

// One row of 256,000 logits takes 70 us (AVX2 150): it is shared out too, by 32,768, some 10 us.
template <void (*kRow)(const SoftCapRow&)>
void run_rows(OpContext& context, const SoftCapArgs& args) {
  constexpr int64_t kElements = 32768;
  if (args.x.columns() < kElements && args.x.rows() > 1) {
    const int64_t rows = kElements / args.x.columns();
    context.device.pool().parallel_rows(args.x.rows(), rows, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        kRow({f32_row(args.x, r), args.x.columns(), args.cap, args.kind});
      }
    });
    return;
  }
  for (int64_t r = 0; r < args.x.rows(); ++r) {
    float* x = f32_row(args.x, r);  // [V]
    context.device.pool().parallel_for(args.x.columns(), kElements,
                                       [&](int64_t first, int64_t last) {
                                         kRow({x + first, last - first, args.cap, args.kind});
                                       });
  }
}

bool any_cpu(const DeviceTraits& traits, const SoftCapArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const SoftCapArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const SoftCapArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kSoftCapKernels = {
    Kernel<SoftCapArgs>{"soft_cap/cpu/avx512", avx512, run_rows<soft_cap_row_avx512>},
    Kernel<SoftCapArgs>{"soft_cap/cpu/avx2", avx2, run_rows<soft_cap_row_avx2>},
    Kernel<SoftCapArgs>{"soft_cap/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<SoftCapArgs> soft_cap_cpu_kernels() { return kSoftCapKernels; }

}  // namespace headrace
