#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/states/selective_scan.h"
#include "ops/states/selective_scan_channels.h"
#include "ops/states/state_heads.h"

namespace headrace {
namespace {

// As the scan is written.
void reference_channels(const ScanChannels& a) {
  const int64_t numbers = a.state_dim * a.channels;
  if (a.begins) std::fill_n(a.state, numbers, 0.0f);
  int64_t saved = 0;
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t c = 0; c < a.channels; ++c) {
      const double raw = double{a.dt[t * a.dt_stride + c]} + a.dt_bias[c];
      const double dt = raw > 20.0 ? raw : std::log1p(std::exp(raw));
      const double x = a.x[t * a.x_stride + c], gate = a.z[t * a.z_stride + c];
      double sum = 0;
      for (int64_t n = 0; n < a.state_dim; ++n) {
        float& s = a.state[n * a.channels + c];
        const double changed =
            std::exp(a.rate[n * a.rate_stride + c] * dt) * s + dt * a.b[t * a.b_stride + n] * x;
        sum += changed * a.c[t * a.c_stride + n];
        s = static_cast<float>(changed);
      }
      const double y = sum + a.skip[c] * x;
      a.out[t * a.out_stride + c] = static_cast<float>(y * gate / (1.0 + std::exp(-gate)));
    }
    while (saved < a.save_count && a.saves[saved].row == t) {
      std::copy_n(a.state, numbers, a.saves[saved++].state);
    }
  }
}

// Channels [first, last) of a sequence.
template <void (*kChannels)(const ScanChannels&)>
void scan(const SelectiveScanArgs& args, const StateSequence& sequence, int64_t first,
          int64_t last) {
  std::vector<StateAfterRow> saves;
  saves_of(args.states, sequence, first * args.state_dim, saves);
  const int64_t row = sequence.row_first;
  kChannels({.x = f32_row(args.x, row) + first,
             .z = f32_row(args.z, row) + first,
             .dt = f32_row(args.dt, row) + first,
             .b = f32_row(args.b, row),
             .c = f32_row(args.c, row),
             .rate = args.rate + first,
             .dt_bias = args.dt_bias + first,
             .skip = args.skip + first,
             .state = args.states.at(sequence.entry) + first * args.state_dim,
             .out = f32_row(args.out, row) + first,
             .saves = saves.data(),
             .save_count = static_cast<int64_t>(saves.size()),
             .x_stride = args.x.row_stride / 4,
             .z_stride = args.z.row_stride / 4,
             .dt_stride = args.dt.row_stride / 4,
             .b_stride = args.b.row_stride / 4,
             .c_stride = args.c.row_stride / 4,
             .rate_stride = args.out.columns(),
             .out_stride = args.out.row_stride / 4,
             .rows = sequence.row_count,
             .channels = last - first,
             .state_dim = args.state_dim,
             .begins = sequence.position == 0});
}

// A row of a block takes about 0.5 us.
template <void (*kChannels)(const ScanChannels&)>
void run_channels(OpContext& context, const SelectiveScanArgs& args) {
  const int64_t channels = args.out.columns();
  const int64_t blocks = (channels + kScanColumns - 1) / kScanColumns;
  const auto count = static_cast<int64_t>(args.states.sequences.size()) * blocks;
  context.device.pool().parallel_for(count, 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t channel = i % blocks * kScanColumns;
      scan<kChannels>(args, args.states.sequences[static_cast<size_t>(i / blocks)], channel,
                      std::min(channels, channel + kScanColumns));
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const SelectiveScanArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const SelectiveScanArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const SelectiveScanArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kSelectiveScanKernels = {
    Kernel<SelectiveScanArgs>{"selective_scan/cpu/avx512", avx512,
                              run_channels<scan_channels_avx512>},
    Kernel<SelectiveScanArgs>{"selective_scan/cpu/avx2", avx2, run_channels<scan_channels_avx2>},
    Kernel<SelectiveScanArgs>{"selective_scan/cpu/reference", any_cpu,
                              run_channels<reference_channels>},
};

}  // namespace

KernelTable<SelectiveScanArgs> selective_scan_cpu_kernels() { return kSelectiveScanKernels; }

}  // namespace headrace
