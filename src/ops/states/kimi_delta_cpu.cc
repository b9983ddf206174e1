#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/states/kimi_delta.h"
#include "ops/states/kimi_delta_head.h"
#include "ops/states/state_heads.h"

namespace headrace {
namespace {

// x := x / |x| * scale
void normalise_kimi_head(float* x, int64_t count, double scale) {
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += double{x[i]} * x[i];
  const auto factor = static_cast<float>(scale / std::sqrt(squares + 1e-6));
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

double log_of_decay(const KimiDeltaArgs& args, double rate, double x) {
  if (args.decay_floor < 0) return args.decay_floor / (1.0 + std::exp(rate * x));
  return rate * (x > 20.0 ? x : std::log1p(std::exp(x)));
}

// What the rule reads of a row, in the place of what it is made of.
void prepare_kimi_row(const KimiDeltaArgs& args, int64_t t) {
  const int64_t dim = args.heads.dim, columns = args.heads.columns();
  float* const q = f32_row(args.qkv, t);
  float* const forget = f32_row(args.forget, t);
  float* const beta = f32_row(args.beta, t);
  for (int64_t head = 0; head < args.heads.count; ++head) {
    normalise_kimi_head(q + head * dim, dim, 1.0 / std::sqrt(static_cast<double>(dim)));
    normalise_kimi_head(q + columns + head * dim, dim, 1.0);
    beta[head] = static_cast<float>(1.0 / (1.0 + std::exp(-double{beta[head]})));
    for (int64_t i = head * dim; i < (head + 1) * dim; ++i) {
      const double x = double{forget[i]} + args.dt_bias[i];
      forget[i] = static_cast<float>(std::exp(log_of_decay(args, args.rate[head], x)));
    }
  }
}

// A row takes some microseconds a head.
void prepare_kimi_rows(OpContext& context, const KimiDeltaArgs& args) {
  context.device.pool().parallel_rows(args.out.rows(), 2, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) prepare_kimi_row(args, t);
  });
}

KimiDeltaHead kimi_head_of(const KimiDeltaArgs& args, const StateSequence& sequence, int64_t head,
                           const std::vector<StateAfterRow>& saves) {
  const int64_t row = sequence.row_first, dim = args.heads.dim, columns = args.heads.columns();
  const float* const qkv = f32_row(args.qkv, row) + head * dim;
  return {.q = qkv,
          .k = qkv + columns,
          .v = qkv + 2 * columns,
          .decay = f32_row(args.forget, row) + head * dim,
          .beta = f32_row(args.beta, row) + head,
          .z = f32_row(args.z, row) + head * dim,
          .norm = args.norm,
          .state = args.states.at(sequence.entry) + head * dim * dim,
          .out = f32_row(args.out, row) + head * dim,
          .saves = saves.data(),
          .save_count = static_cast<int64_t>(saves.size()),
          .qkv_stride = args.qkv.row_stride / 4,
          .decay_stride = args.forget.row_stride / 4,
          .beta_stride = args.beta.row_stride / 4,
          .z_stride = args.z.row_stride / 4,
          .out_stride = args.out.row_stride / 4,
          .rows = sequence.row_count,
          .dim = dim,
          .norm_eps = args.norm_eps,
          .begins = sequence.position == 0};
}

template <void (*kHead)(const KimiDeltaHead&)>
void run_kimi_heads(OpContext& context, const KimiDeltaArgs& args) {
  prepare_kimi_rows(context, args);
  for_each_head(
      context, args.states, args.heads.count, int64_t{args.heads.dim} * args.heads.dim,
      [&](const StateSequence& sequence, int64_t head, const std::vector<StateAfterRow>& saves) {
        kHead(kimi_head_of(args, sequence, head, saves));
      });
}

// Where the state has S[i][j].
int64_t kimi_place(int64_t dim, int64_t i, int64_t j) {
  const int64_t column = j / kKimiDeltaColumns * kKimiDeltaColumns;
  return column * dim + i * std::min(kKimiDeltaColumns, dim - column) + (j - column);
}

void gate_kimi_reference(const KimiDeltaHead& a, const std::vector<double>& o, int64_t t) {
  double squares = 0;
  for (const double value : o) squares += value * value;
  const double rms = std::sqrt(squares / static_cast<double>(a.dim) + a.norm_eps);
  for (int64_t j = 0; j < a.dim; ++j) {
    const double gate = 1.0 + std::exp(-double{a.z[t * a.z_stride + j]});
    a.out[t * a.out_stride + j] =
        static_cast<float>(o[static_cast<size_t>(j)] / rms * a.norm[j] / gate);
  }
}

// As the rule is written.
void kimi_reference_head(const KimiDeltaHead& a) {
  const int64_t numbers = a.dim * a.dim;
  if (a.begins) std::fill_n(a.state, numbers, 0.0f);
  int64_t saved = 0;
  std::vector<double> o(static_cast<size_t>(a.dim));
  for (int64_t t = 0; t < a.rows; ++t) {
    const float* const q = a.q + t * a.qkv_stride;
    const float* const k = a.k + t * a.qkv_stride;
    const float* const decay = a.decay + t * a.decay_stride;
    const double beta = a.beta[t * a.beta_stride];
    for (int64_t j = 0; j < a.dim; ++j) {
      double read = 0;
      for (int64_t i = 0; i < a.dim; ++i) {
        read += double{decay[i]} * a.state[kimi_place(a.dim, i, j)] * k[i];
      }
      const double delta = beta * (a.v[t * a.qkv_stride + j] - read);
      double sum = 0;
      for (int64_t i = 0; i < a.dim; ++i) {
        float& s = a.state[kimi_place(a.dim, i, j)];
        const double changed = double{decay[i]} * s + k[i] * delta;
        sum += changed * q[i];
        s = static_cast<float>(changed);
      }
      o[static_cast<size_t>(j)] = sum;
    }
    gate_kimi_reference(a, o, t);
    while (saved < a.save_count && a.saves[saved].row == t) {
      std::copy_n(a.state, numbers, a.saves[saved++].state);
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const KimiDeltaArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const KimiDeltaArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const KimiDeltaArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kKimiDeltaKernels = {
    Kernel<KimiDeltaArgs>{"kimi_delta/cpu/avx512", avx512, run_kimi_heads<kimi_delta_head_avx512>},
    Kernel<KimiDeltaArgs>{"kimi_delta/cpu/avx2", avx2, run_kimi_heads<kimi_delta_head_avx2>},
    Kernel<KimiDeltaArgs>{"kimi_delta/cpu/reference", any_cpu, run_kimi_heads<kimi_reference_head>},
};

}  // namespace

KernelTable<KimiDeltaArgs> kimi_delta_cpu_kernels() { return kKimiDeltaKernels; }

}  // namespace headrace
