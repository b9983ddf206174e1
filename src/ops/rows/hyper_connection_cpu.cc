#include <algorithm>
#include <array>
#include <cmath>

#include "ops/rows/activation.h"
#include "ops/rows/hyper_connection.h"

namespace headrace {
namespace {

using Gates = std::array<float, static_cast<size_t>(kHyperStreamsMax)>;

// What gates are made of: a number of those of logit `at`, of which `part` has the scale.
double scaled_logit(const HyperMixArgs& args, int64_t t, int64_t part, int64_t at, double factor) {
  return f32_row(args.logits, t)[at] * factor * args.scales[part] + args.biases[at];
}

Gates gates_of(const HyperMixArgs& args, int64_t t, int64_t part, int64_t count, double factor,
               float magnitude, float eps) {
  Gates gates{};
  for (int64_t j = 0; j < count; ++j) {
    const double logit = scaled_logit(args, t, part, part * count + j, factor);
    const double gate = activated(Activation::kSigmoid, logit);
    gates[static_cast<size_t>(j)] = static_cast<float>(magnitude * gate + eps);
  }
  return gates;
}

// Square matrices of so many streams, row by row.
struct StreamMatrix {
  std::array<double, static_cast<size_t>(kHyperStreamsMax* kHyperStreamsMax)> numbers;
  int64_t streams;

  double& at(int64_t row, int64_t column) {
    return numbers[static_cast<size_t>(row * streams + column)];
  }
  void divide_rows(double eps) {
    for (int64_t i = 0; i < streams; ++i) {
      double sum = eps;
      for (int64_t j = 0; j < streams; ++j) sum += at(i, j);
      for (int64_t j = 0; j < streams; ++j) at(i, j) /= sum;
    }
  }
  void divide_columns(double eps) {
    for (int64_t j = 0; j < streams; ++j) {
      double sum = eps;
      for (int64_t i = 0; i < streams; ++i) sum += at(i, j);
      for (int64_t i = 0; i < streams; ++i) at(i, j) /= sum;
    }
  }
};

void make_matrix(const HyperMixArgs& args, int64_t t, int64_t streams, double factor) {
  StreamMatrix matrix{.numbers = {}, .streams = streams};
  for (int64_t i = 0; i < streams; ++i) {
    double largest = 0;
    for (int64_t j = 0; j < streams; ++j) {
      const double logit = scaled_logit(args, t, 2, 2 * streams + i * streams + j, factor);
      matrix.at(i, j) = logit;
      largest = j == 0 ? logit : std::max(largest, logit);
    }
    double sum = 0;
    for (int64_t j = 0; j < streams; ++j) {
      matrix.at(i, j) = std::exp(matrix.at(i, j) - largest);
      sum += matrix.at(i, j);
    }
    for (int64_t j = 0; j < streams; ++j) matrix.at(i, j) = matrix.at(i, j) / sum + args.eps;
  }
  for (int32_t round = 0; round < args.rounds; ++round) {
    if (round > 0) matrix.divide_rows(args.eps);
    matrix.divide_columns(args.eps);
  }
  float* const out = f32_row(args.mixes, t);
  for (int64_t i = 0; i < streams * streams; ++i) {
    out[i] = static_cast<float>(matrix.numbers[static_cast<size_t>(i)]);
  }
}

void mix_row(const HyperMixArgs& args, int64_t t) {
  const int64_t columns = args.x.columns(), streams = args.streams.columns() / columns;
  const float* const from = f32_row(args.streams, t);  // [N, D]
  double squares = 0;
  for (int64_t i = 0; i < args.streams.columns(); ++i) squares += double{from[i]} * from[i];
  const double mean = squares / static_cast<double>(args.streams.columns());
  const double factor = 1.0 / std::sqrt(mean + args.norm_eps);
  const Gates read = gates_of(args, t, 0, streams, factor, 1.0f, args.eps);
  float* const x = f32_row(args.x, t);
  for (int64_t c = 0; c < columns; ++c) {
    float sum = 0;
    for (int64_t j = 0; j < streams; ++j) {
      sum += read[static_cast<size_t>(j)] * from[j * columns + c];
    }
    x[c] = sum;
  }
  if (args.gates.data == nullptr) return;
  const bool mixes = args.mixes.data != nullptr;
  const Gates added =
      gates_of(args, t, 1, streams, factor, args.magnitude, mixes ? 0.0f : args.eps);
  for (int64_t j = 0; j < streams; ++j) f32_row(args.gates, t)[j] = added[static_cast<size_t>(j)];
  if (mixes) make_matrix(args, t, streams, factor);
}

// A column of all streams at a time, since each of the new ones is made of all old ones.
void mix_streams(const HyperAddArgs& args, int64_t t) {
  const int64_t columns = args.x.columns(), streams = args.gates.columns();
  const float* const matrix = f32_row(args.mixes, t);
  float* const rows = f32_row(args.streams, t);
  for (int64_t c = 0; c < columns; ++c) {
    Gates mixed{};
    for (int64_t i = 0; i < streams; ++i) {
      const float from = rows[i * columns + c];
      for (int64_t j = 0; j < streams; ++j) {
        mixed[static_cast<size_t>(j)] += matrix[i * streams + j] * from;
      }
    }
    for (int64_t j = 0; j < streams; ++j) rows[j * columns + c] = mixed[static_cast<size_t>(j)];
  }
}

void add_row(const HyperAddArgs& args, int64_t t) {
  if (args.mixes.data != nullptr) mix_streams(args, t);
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
