#include <array>
#include <cmath>

#include "ops/rows/altup.h"

namespace headrace {
namespace {

constexpr auto kMost = static_cast<size_t>(kAltUpStreamsMax);

// out = W tanh(modes), [count] of a small matrix [count, N].
void weigh(const float* weights, const ConstTensorView& modes, int64_t t, size_t count,
           float* out) {
  const auto columns = static_cast<size_t>(modes.columns());
  std::array<float, kMost> m;
  for (size_t c = 0; c < columns; ++c) m[c] = std::tanh(f32_row(modes, t)[c]);
  for (size_t r = 0; r < count; ++r) {
    float sum = 0;
    for (size_t c = 0; c < columns; ++c) sum += weights[r * columns + c] * m[c];
    out[r] = sum;
  }
}

void predict_row(const AltUpPredictArgs& args, int64_t t) {
  const auto streams = static_cast<size_t>(args.modes.columns());
  const int64_t columns = args.x.columns();
  std::array<float, kMost * kMost> weights;
  std::array<float, kMost> made;
  weigh(args.weights, args.modes, t, streams * streams, weights.data());
  float* const first = f32_row(args.streams, t);  // [N, D]
  float* const x = f32_row(args.x, t);            // [D]
  for (int64_t c = 0; c < columns; ++c) {
    for (size_t j = 0; j < streams; ++j) {
      float sum = 0;
      for (size_t i = 0; i < streams; ++i) {
        sum += first[static_cast<int64_t>(i) * columns + c] * weights[j * streams + i];
      }
      made[j] = sum + first[static_cast<int64_t>(j) * columns + c];
    }
    for (size_t j = 0; j < streams; ++j) first[static_cast<int64_t>(j) * columns + c] = made[j];
    x[c] = made[static_cast<size_t>(args.active)];
  }
}

void correct_row(const AltUpCorrectArgs& args, int64_t t) {
  const auto streams = static_cast<size_t>(args.modes.columns());
  const int64_t columns = args.x.columns();
  std::array<float, kMost> weights;
  weigh(args.weights, args.modes, t, streams, weights.data());
  float* const first = f32_row(args.streams, t);  // [N, D]
  const float* const x = f32_row(args.x, t);      // [D], as out
  float* const out = f32_row(args.out, t);
  const int64_t active = args.active * columns;
  for (int64_t c = 0; c < columns; ++c) {
    const float made = x[c] - first[active + c];
    for (size_t j = 0; j < streams; ++j) {
      first[static_cast<int64_t>(j) * columns + c] += made * (weights[j] + 1.0f);
    }
    out[c] = args.scale == nullptr ? first[active + c] : first[active + c] * args.scale[c];
  }
}

// Four rows of four streams of 2,048 columns take some 50 us: fewer are not worth a fork-join.
template <class Args, void (*kRow)(const Args&, int64_t)>
void reference(OpContext& context, const Args& args) {
  context.device.pool().parallel_rows(args.x.rows(), 4, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) kRow(args, t);
  });
}

template <class Args>
bool altup_any_cpu(const DeviceTraits& traits, const Args& args) {
  return traits.kind == DeviceKind::kCpu && args.streams.dtype == DType::kF32;
}

constexpr std::array kPredictKernels = {Kernel<AltUpPredictArgs>{
    "altup_predict/cpu/reference", altup_any_cpu, reference<AltUpPredictArgs, predict_row>}};
constexpr std::array kCorrectKernels = {Kernel<AltUpCorrectArgs>{
    "altup_correct/cpu/reference", altup_any_cpu, reference<AltUpCorrectArgs, correct_row>}};

}  // namespace

KernelTable<AltUpPredictArgs> altup_predict_cpu_kernels() { return kPredictKernels; }
KernelTable<AltUpCorrectArgs> altup_correct_cpu_kernels() { return kCorrectKernels; }

}  // namespace headrace
