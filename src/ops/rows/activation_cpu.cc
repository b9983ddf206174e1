#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ops/rows/activation.h"

namespace headrace {

double activated(Activation activation, double x, const ClampedSwishShape& swish) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::kGeluErf:
      return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kReluSquared:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::kXielu:  // xielu(), and never gated
      break;
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case Activation::kClampedSwish: {
      const double gate = std::min(x, double{swish.bound});
      return gate / (1.0 + std::exp(-double{swish.slope} * gate));
    }
  }
  __builtin_unreachable();
}

double activated_up(Activation activation, double up, const ClampedSwishShape& swish) {
  if (activation != Activation::kClampedSwish) return up;
  return std::clamp(up, -double{swish.bound}, double{swish.bound}) + 1.0;
}

namespace {

double xielu(const XieluParameters& of, double x) {
  if (x > 0) return of.p * x * x + of.b * x;
  return of.n * (std::expm1(std::min<double>(x, of.e)) - x) + of.b * x;
}

const float* up_row(const GatedActivationArgs& args, int64_t t) {
  if (args.up.data != nullptr) return f32_row(args.up, t);
  return f32_row(args.gate_up, t) + args.out.columns();
}

void reference(OpContext&, const GatedActivationArgs& args) {
  const int64_t features = args.out.columns();
  for (int64_t t = 0; t < args.out.rows(); ++t) {
    const float* gate = f32_row(args.gate_up, t);  // [F]
    const float* up = up_row(args, t);             // [F]
    float* out = f32_row(args.out, t);             // [F]
    for (int64_t i = 0; i < features; ++i) {
      out[i] = static_cast<float>(activated(args.activation, gate[i], args.swish) *
                                  activated_up(args.activation, up[i], args.swish));
    }
  }
}

void plain_reference(OpContext&, const ActivationArgs& args) {
  for (int64_t t = 0; t < args.out.rows(); ++t) {
    const float* x = f32_row(args.x, t);  // [F]
    float* out = f32_row(args.out, t);    // [F]
    for (int64_t i = 0; i < args.out.columns(); ++i) {
      const bool of_apertus = args.activation == Activation::kXielu;
      out[i] = static_cast<float>(of_apertus ? xielu(args.xielu, x[i])
                                             : activated(args.activation, x[i]));
    }
  }
}

// Eight rows of 1536 features take about 8 us: fewer are not worth a fork-join.
template <void (*kRow)(const GatedActivationRow&)>
void run_rows(OpContext& context, const GatedActivationArgs& args) {
  const int64_t features = args.out.columns();
  context.device.pool().parallel_rows(args.out.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      kRow({f32_row(args.gate_up, t),
            up_row(args, t),
            f32_row(args.out, t),
            features,
            args.activation,
            {},
            args.swish});
    }
  });
}

template <void (*kRow)(const GatedActivationRow&)>
void run_plain_rows(OpContext& context, const ActivationArgs& args) {
  const int64_t features = args.out.columns();
  context.device.pool().parallel_rows(args.out.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      kRow({f32_row(args.x, t),
            nullptr,
            f32_row(args.out, t),
            features,
            args.activation,
            args.xielu,
            {}});
    }
  });
}

template <class Args>
bool any_cpu(const DeviceTraits& traits, const Args&) {
  return traits.kind == DeviceKind::kCpu;
}
template <class Args>
bool avx512(const DeviceTraits& traits, const Args& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
template <class Args>
bool avx2(const DeviceTraits& traits, const Args& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kActivationKernels = {
    Kernel<GatedActivationArgs>{"gated_activation/cpu/avx512", avx512,
                                run_rows<gated_activation_row_avx512>},
    Kernel<GatedActivationArgs>{"gated_activation/cpu/avx2", avx2,
                                run_rows<gated_activation_row_avx2>},
    Kernel<GatedActivationArgs>{"gated_activation/cpu/reference", any_cpu, reference},
};

constexpr std::array kPlainKernels = {
    Kernel<ActivationArgs>{"activation/cpu/avx512", avx512,
                           run_plain_rows<gated_activation_row_avx512>},
    Kernel<ActivationArgs>{"activation/cpu/avx2", avx2, run_plain_rows<gated_activation_row_avx2>},
    Kernel<ActivationArgs>{"activation/cpu/reference", any_cpu, plain_reference},
};

}  // namespace

KernelTable<GatedActivationArgs> gated_activation_cpu_kernels() { return kActivationKernels; }
KernelTable<ActivationArgs> activation_cpu_kernels() { return kPlainKernels; }

}  // namespace headrace
