#include <array>
#include <cmath>

#include "ops/rows/activation.h"
#include "ops/rows/hyper_connection.h"

namespace headrace {
namespace {

using Gates = std::array<float, static_cast<size_t>(kHyperStreamsMax)>;

// Of logits [first, first + count), of which `part` has the scale.
Gates gates_of(const HyperMixArgs& args, int64_t t, int64_t part, int64_t count, double factor,
               float magnitude) {
  Gates gates{};
  for (int64_t j = 0; j < count; ++j) {
    const int64_t at = part * count + j;
    const double m = f32_row(args.logits, t)[at] * factor;
    const double gate = activated(Activation::kSigmoid, m * args.scales[part] + args.biases[at]);
    gates[static_cast<size_t>(j)] = static_cast<float>(magnitude * gate + args.eps);
  }
  return gates;
}

void mix_row(const HyperMixArgs& args, int64_t t) {
  const int64_t columns = args.x.columns(), streams = args.streams.columns() / columns;
  const float* const from = f32_row(args.streams, t);  // [N, D]
  double squares = 0;
  for (int64_t i = 0; i < args.streams.columns(); ++i) squares += double{from[i]} * from[i];
  const double mean = squares / static_cast<double>(args.streams.columns());
  const double factor = 1.0 / std::sqrt(mean + args.norm_eps);
  const Gates read = gates_of(args, t, 0, streams, factor, 1.0f);
  float* const x = f32_row(args.x, t);
  for (int64_t c = 0; c < columns; ++c) {
    float sum = 0;
    for (int64_t j = 0; j < streams; ++j) {
      sum += read[static_cast<size_t>(j)] * from[j * columns + c];
    }
    x[c] = sum;
  }
  if (args.gates.data == nullptr) return;
  const Gates added = gates_of(args, t, 1, streams, factor, args.magnitude);
  for (int64_t j = 0; j < streams; ++j) f32_row(args.gates, t)[j] = added[static_cast<size_t>(j)];
}

void add_row(const HyperAddArgs& args, int64_t t) {
  const int64_t columns = args.x.columns();
  const float* const x = f32_row(args.x, t);
  const float* const before = f32_row(args.before, t);
  for (int64_t j = 0; j < args.gates.columns(); ++j) {
    float* const stream = f32_row(args.streams, t) + j * columns;
    const float gate = f32_row(args.gates, t)[j];
    for (int64_t c = 0; c < columns; ++c) stream[c] += gate * (x[c] - before[c]);
  }
}

// A row of some thousand columns takes some microseconds.
template <class Args, void (*kRow)(const Args&, int64_t)>
void run_rows(OpContext& context, const Args& args) {
  context.device.pool().parallel_rows(args.x.rows(), 2, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) kRow(args, t);
  });
}

bool mixes_on_cpu(const DeviceTraits& traits, const HyperMixArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool adds_on_cpu(const DeviceTraits& traits, const HyperAddArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kMixKernels = {
    Kernel<HyperMixArgs>{"hyper_mix/cpu/any", mixes_on_cpu, run_rows<HyperMixArgs, mix_row>}};
constexpr std::array kAddKernels = {
    Kernel<HyperAddArgs>{"hyper_add/cpu/any", adds_on_cpu, run_rows<HyperAddArgs, add_row>}};

}  // namespace

KernelTable<HyperMixArgs> hyper_mix_cpu_kernels() { return kMixKernels; }
KernelTable<HyperAddArgs> hyper_add_cpu_kernels() { return kAddKernels; }

}  // namespace headrace
