#include <array>
#include <cmath>
#include <vector>

#include "ops/states/delta_rule.h"
#include "ops/states/delta_rule_head.h"
#include "ops/states/state_heads.h"

namespace headrace {
namespace {

// x := x / |x| * scale
void normalise_head(float* x, int64_t count, double scale) {
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += double{x[i]} * x[i];
  const auto factor = static_cast<float>(scale / std::sqrt(squares + 1e-6));
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

// What the rule reads of a row, in the place of what it is made of.
void prepare_row(const DeltaRuleArgs& args, int64_t t) {
  const DeltaHeads& heads = args.heads;
  float* q = f32_row(args.qkv, t);
  for (int32_t head = 0; head < heads.key_heads; ++head) {
    const int64_t at = int64_t{head} * heads.key_dim;
    normalise_head(q + at, heads.key_dim, 1.0 / std::sqrt(static_cast<double>(heads.key_dim)));
    normalise_head(q + heads.keys() + at, heads.key_dim, 1.0);
  }
  float* b = f32_row(args.gates, t);
  float* a = b + heads.value_heads;
  for (int32_t head = 0; head < heads.value_heads; ++head) {
    b[head] = static_cast<float>(args.beta_scale / (1.0 + std::exp(-double{b[head]})));
    const double x = double{a[head]} + args.dt_bias[head];
    const double softplus = x > 20.0 ? x : std::log1p(std::exp(x));
    a[head] = static_cast<float>(std::exp(args.rate[head] * softplus));
  }
}

// Eight rows take about 10 us: fewer are not worth a fork-join.
void prepare_rows(OpContext& context, const DeltaRuleArgs& args) {
  context.device.pool().parallel_rows(args.out.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) prepare_row(args, t);
  });
}

DeltaHead head_of(const DeltaRuleArgs& args, const StateSequence& sequence, int64_t head,
                  const std::vector<StateAfterRow>& saves) {
  const DeltaHeads& heads = args.heads;
  const int64_t row = sequence.row_first, dv = heads.value_dim;
  const float* qkv = f32_row(args.qkv, row);
  const float* gates = f32_row(args.gates, row);
  const int64_t key_head =
      heads.tiled ? head % heads.key_heads : head / (heads.value_heads / heads.key_heads);
  return {.q = qkv + key_head * heads.key_dim,
          .k = qkv + heads.keys() + key_head * heads.key_dim,
          .v = qkv + 2 * heads.keys() + head * dv,
          .beta = gates + head,
          .decay = gates + heads.value_heads + head,
          .z = f32_row(args.z, row) + head * dv,
          .norm = args.norm,
          .state = args.states.at(sequence.entry) + head * heads.key_dim * dv,
          .out = f32_row(args.out, row) + head * dv,
          .saves = saves.data(),
          .save_count = static_cast<int64_t>(saves.size()),
          .qkv_stride = args.qkv.row_stride / 4,
          .gate_stride = args.gates.row_stride / 4,
          .z_stride = args.z.row_stride / 4,
          .out_stride = args.out.row_stride / 4,
          .rows = sequence.row_count,
          .key_dim = heads.key_dim,
          .value_dim = dv,
          .norm_eps = args.norm_eps,
          .begins = sequence.position == 0,
          .sigmoid_gates = args.sigmoid_gates};
}

template <void (*kHead)(const DeltaHead&)>
void run_heads(OpContext& context, const DeltaRuleArgs& args) {
  prepare_rows(context, args);
  for_each_head(
      context, args.states, args.heads.value_heads,
      int64_t{args.heads.key_dim} * args.heads.value_dim,
      [&](const StateSequence& sequence, int64_t head, const std::vector<StateAfterRow>& saves) {
        kHead(head_of(args, sequence, head, saves));
      });
}

// Where the state has S[i][j].
int64_t place(const DeltaHead& a, int64_t i, int64_t j) {
  const int64_t column = j / kDeltaColumns * kDeltaColumns;
  const int64_t width = std::min(kDeltaColumns, a.value_dim - column);
  return column * a.key_dim + i * width + (j - column);
}

void gate_reference_row(const DeltaHead& a, const std::vector<double>& o, int64_t t) {
  double squares = 0;
  for (const double value : o) squares += value * value;
  const double rms = std::sqrt(squares / static_cast<double>(a.value_dim) + a.norm_eps);
  for (int64_t j = 0; j < a.value_dim; ++j) {
    const double gate = a.z[t * a.z_stride + j];
    a.out[t * a.out_stride + j] =
        static_cast<float>(o[static_cast<size_t>(j)] / rms * a.norm[j] *
                           ((a.sigmoid_gates ? 1.0 : gate) / (1.0 + std::exp(-gate))));
  }
}

// As the rule is written.
void reference_head(const DeltaHead& a) {
  const int64_t numbers = a.key_dim * a.value_dim;
  if (a.begins) std::fill_n(a.state, numbers, 0.0f);
  int64_t saved = 0;
  std::vector<double> o(static_cast<size_t>(a.value_dim));
  for (int64_t t = 0; t < a.rows; ++t) {
    const float* q = a.q + t * a.qkv_stride;
    const float* k = a.k + t * a.qkv_stride;
    const double decay = a.decay[t * a.gate_stride], beta = a.beta[t * a.gate_stride];
    for (int64_t j = 0; j < a.value_dim; ++j) {
      double read = 0;
      for (int64_t i = 0; i < a.key_dim; ++i) read += decay * a.state[place(a, i, j)] * k[i];
      const double delta = beta * (a.v[t * a.qkv_stride + j] - read);
      double sum = 0;
      for (int64_t i = 0; i < a.key_dim; ++i) {
        float& s = a.state[place(a, i, j)];
        const double changed = decay * s + k[i] * delta;
        sum += changed * q[i];
        s = static_cast<float>(changed);
      }
      o[static_cast<size_t>(j)] = sum;
    }
    gate_reference_row(a, o, t);
    while (saved < a.save_count && a.saves[saved].row == t) {
      std::copy_n(a.state, numbers, a.saves[saved++].state);
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const DeltaRuleArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const DeltaRuleArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const DeltaRuleArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kDeltaRuleKernels = {
    Kernel<DeltaRuleArgs>{"delta_rule/cpu/avx512", avx512, run_heads<delta_head_avx512>},
    Kernel<DeltaRuleArgs>{"delta_rule/cpu/avx2", avx2, run_heads<delta_head_avx2>},
    Kernel<DeltaRuleArgs>{"delta_rule/cpu/reference", any_cpu, run_heads<reference_head>},
};

}  // namespace

KernelTable<DeltaRuleArgs> delta_rule_cpu_kernels() { return kDeltaRuleKernels; }

}  // namespace headrace
