#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/states/rg_lru.h"
#include "ops/states/rg_lru_channels.h"
#include "ops/states/state_heads.h"

namespace headrace {
namespace {

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// As it is written.
void reference_channels(const LruChannels& a) {
  for (int64_t c = 0; c < a.channels; ++c) {
    double h = a.begins ? 0.0 : a.state[c];
    int64_t saved = 0;
    for (int64_t t = 0; t < a.rows; ++t) {
      const double in = logistic(double{a.in[t * a.in_stride + c]} + a.in_bias[c]);
      const double taken = in * a.x[t * a.x_stride + c];
      const double log_a =
          a.rate[c] * logistic(double{a.forget[t * a.forget_stride + c]} + a.forget_bias[c]);
      const bool first = t == 0 && a.begins;
      h = first ? taken : std::exp(log_a) * h + std::sqrt(1.0 - std::exp(2 * log_a)) * taken;
      h = static_cast<float>(h);  // as it is kept between steps
      a.out[t * a.out_stride + c] = static_cast<float>(h * a.gate[t * a.gate_stride + c]);
      while (saved < a.save_count && a.saves[saved].row == t) {
        a.saves[saved++].state[c] = static_cast<float>(h);
      }
    }
    a.state[c] = static_cast<float>(h);
  }
}

// Channels [first, last) of a sequence.
template <void (*kChannels)(const LruChannels&)>
void advance(const RgLruArgs& args, const StateSequence& sequence, int64_t first, int64_t last) {
  std::vector<StateAfterRow> saves;
  saves_of(args.states, sequence, first, saves);
  const auto at = [&](const auto& rows) { return f32_row(rows, sequence.row_first) + first; };
  kChannels({.x = at(args.x),
             .in = at(args.in),
             .forget = at(args.forget),
             .gate = at(args.gate),
             .in_bias = args.in_bias + first,
             .forget_bias = args.forget_bias + first,
             .rate = args.rate + first,
             .state = args.states.at(sequence.entry) + first,
             .out = at(args.out),
             .saves = saves.data(),
             .save_count = static_cast<int64_t>(saves.size()),
             .x_stride = args.x.row_stride / 4,
             .in_stride = args.in.row_stride / 4,
             .forget_stride = args.forget.row_stride / 4,
             .gate_stride = args.gate.row_stride / 4,
             .out_stride = args.out.row_stride / 4,
             .rows = sequence.row_count,
             .channels = last - first,
             .begins = sequence.position == 0});
}

// Of few rows the sequences are handed out whole, as causal_conv's.
template <void (*kChannels)(const LruChannels&)>
void run_lru(OpContext& context, const RgLruArgs& args) {
  constexpr int64_t kChannelsOfUnit = 256;
  const int64_t channels = args.out.columns();
  const int64_t units = (channels + kChannelsOfUnit - 1) / kChannelsOfUnit;
  const auto count = static_cast<int64_t>(args.states.sequences.size()) * units;
  const int64_t grain = args.out.rows() * units >= 16 ? 1 : count;
  context.device.pool().parallel_for(count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t channel = i % units * kChannelsOfUnit;
      advance<kChannels>(args, args.states.sequences[static_cast<size_t>(i / units)], channel,
                         std::min(channels, channel + kChannelsOfUnit));
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const RgLruArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const RgLruArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const RgLruArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kRgLruKernels = {
    Kernel<RgLruArgs>{"rg_lru/cpu/avx512", avx512, run_lru<lru_channels_avx512>},
    Kernel<RgLruArgs>{"rg_lru/cpu/avx2", avx2, run_lru<lru_channels_avx2>},
    Kernel<RgLruArgs>{"rg_lru/cpu/reference", any_cpu, run_lru<reference_channels>},
};

}  // namespace

KernelTable<RgLruArgs> rg_lru_cpu_kernels() { return kRgLruKernels; }

}  // namespace headrace
