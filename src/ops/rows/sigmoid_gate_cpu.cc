#include <array>
#include <cmath>

#include "ops/rows/sigmoid_gate.h"
#include "ops/rows/sigmoid_gate_row.h"

namespace headrace {
namespace {

double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

void reference(OpContext&, const SigmoidGateArgs& args) {
  for (int64_t t = 0; t < args.x.rows(); ++t) {
    float* x = f32_row(args.x, t);              // [D]
    const float* gate = f32_row(args.gate, t);  // [G]
    for (int64_t i = 0; i < args.x.columns(); ++i) {
      const double g = gate[i / args.columns_of_gate()];
      const double factor =
          args.kind == GateKind::kSigmoid ? 1.0 / (1.0 + std::exp(-g)) : softplus(g);
      x[i] = static_cast<float>(x[i] * factor);
    }
  }
}

// Eight rows of 2048 columns take about 10 us: fewer are not worth a fork-join.
template <void (*kRow)(const SigmoidGateRow&)>
void run_rows(OpContext& context, const SigmoidGateArgs& args) {
  context.device.pool().parallel_rows(args.x.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      kRow({f32_row(args.x, t), f32_row(args.gate, t), args.x.columns(), args.columns_of_gate(),
            args.kind == GateKind::kSoftplus});
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const SigmoidGateArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const SigmoidGateArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const SigmoidGateArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kSigmoidGateKernels = {
    Kernel<SigmoidGateArgs>{"sigmoid_gate/cpu/avx512", avx512, run_rows<sigmoid_gate_row_avx512>},
    Kernel<SigmoidGateArgs>{"sigmoid_gate/cpu/avx2", avx2, run_rows<sigmoid_gate_row_avx2>},
    Kernel<SigmoidGateArgs>{"sigmoid_gate/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<SigmoidGateArgs> sigmoid_gate_cpu_kernels() { return kSigmoidGateKernels; }

}  // namespace headrace
