#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/states/ssd_scan.h"
#include "ops/states/ssd_scan_head.h"
#include "ops/states/state_heads.h"

namespace headrace {
namespace {

float time_step(const TimeStepRule& rule, float dt, float bias) {
  if (rule.is_constant()) return rule.min;
  const double x = double{rule.scale} * dt + bias;
  const double softplus = x > 20.0 ? x : std::log1p(std::exp(x));
  return static_cast<float>(std::min<double>(std::max<double>(softplus, rule.min), rule.max));
}

// dt as it is used, in its place, and behind it what a state forgets by.
void prepare_row(const SsdScanArgs& args, int64_t t) {
  const int32_t heads = args.heads.heads;
  float* dt = f32_row(args.dt, t);
  for (int32_t head = 0; head < heads; ++head) {
    dt[head] = time_step(args.time_step, dt[head], args.dt_bias[head]);
    dt[heads + head] = static_cast<float>(std::exp(double{args.rate[head]} * dt[head]));
  }
}

// Eight rows take about 10 us: fewer are not worth a fork-join.
void prepare_rows(OpContext& context, const SsdScanArgs& args) {
  context.device.pool().parallel_rows(args.out.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) prepare_row(args, t);
  });
}

SsdHead head_of(const SsdScanArgs& args, const StateSequence& sequence, int64_t head,
                const std::vector<StateAfterRow>& saves) {
  const SsdHeads& heads = args.heads;
  const float* xbc = f32_row(args.xbc, sequence.row_first);
  const float* dt = f32_row(args.dt, sequence.row_first);
  const int64_t group = head / (heads.heads / heads.groups);
  const float* b = xbc + heads.values() + group * heads.state_dim;
  return {.x = xbc + head * heads.head_dim,
          .b = b,
          .c = b + heads.keys(),
          .dt = dt + head,
          .decay = dt + heads.heads + head,
          .state = args.states.at(sequence.entry) + head * heads.head_dim * heads.state_dim,
          .out = f32_row(args.out, sequence.row_first) + head * heads.head_dim,
          .saves = saves.data(),
          .save_count = static_cast<int64_t>(saves.size()),
          .xbc_stride = args.xbc.row_stride / 4,
          .dt_stride = args.dt.row_stride / 4,
          .out_stride = args.out.row_stride / 4,
          .rows = sequence.row_count,
          .head_dim = heads.head_dim,
          .state_dim = heads.state_dim,
          .skip = args.skip[head],
          .begins = sequence.position == 0};
}

template <void (*kHead)(const SsdHead&)>
void run_heads(OpContext& context, const SsdScanArgs& args) {
  prepare_rows(context, args);
  for_each_head(
      context, args.states, args.heads.heads, int64_t{args.heads.head_dim} * args.heads.state_dim,
      [&](const StateSequence& sequence, int64_t head, const std::vector<StateAfterRow>& saves) {
        kHead(head_of(args, sequence, head, saves));
      });
}

// Where the state has component i of column p.
int64_t place(const SsdHead& a, int64_t i, int64_t p) {
  const int64_t column = p / kSsdColumns * kSsdColumns;
  const int64_t width = std::min(kSsdColumns, a.head_dim - column);
  return column * a.state_dim + i * width + (p - column);
}

// As the scan is written.
void reference_head(const SsdHead& a) {
  const int64_t numbers = a.head_dim * a.state_dim;
  if (a.begins) std::fill_n(a.state, numbers, 0.0f);
  int64_t saved = 0;
  for (int64_t t = 0; t < a.rows; ++t) {
    const float* b = a.b + t * a.xbc_stride;
    const float* c = a.c + t * a.xbc_stride;
    const double decay = a.decay[t * a.dt_stride], dt = a.dt[t * a.dt_stride];
    for (int64_t p = 0; p < a.head_dim; ++p) {
      const double x = a.x[t * a.xbc_stride + p];
      double sum = 0;
      for (int64_t i = 0; i < a.state_dim; ++i) {
        float& s = a.state[place(a, i, p)];
        const double changed = decay * s + dt * x * b[i];
        sum += changed * c[i];
        s = static_cast<float>(changed);
      }
      a.out[t * a.out_stride + p] = static_cast<float>(sum + a.skip * x);
    }
    while (saved < a.save_count && a.saves[saved].row == t) {
      std::copy_n(a.state, numbers, a.saves[saved++].state);
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const SsdScanArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const SsdScanArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const SsdScanArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kSsdScanKernels = {
    Kernel<SsdScanArgs>{"ssd_scan/cpu/avx512", avx512, run_heads<ssd_head_avx512>},
    Kernel<SsdScanArgs>{"ssd_scan/cpu/avx2", avx2, run_heads<ssd_head_avx2>},
    Kernel<SsdScanArgs>{"ssd_scan/cpu/reference", any_cpu, run_heads<reference_head>},
};

}  // namespace

KernelTable<SsdScanArgs> ssd_scan_cpu_kernels() { return kSsdScanKernels; }

}  // namespace headrace
