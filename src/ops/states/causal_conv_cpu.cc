#include <array>
#include <cmath>
#include <vector>

#include "ops/states/causal_conv.h"
#include "ops/states/causal_conv_channels.h"

namespace headrace {
namespace {

// The rows of one sequence: v of each, and the state behind any of them.
class ConvRows {
 public:
  ConvRows(const CausalConvArgs& args, const StateSequence& sequence)
      : args_(args), sequence_(sequence), width_(static_cast<size_t>(args.out.columns())) {
    const float* state = args.states.at(sequence.entry);  // [taps - 1, C]
    values_.resize((static_cast<size_t>(args.taps) - 1) * width_);
    if (sequence.position > 0) values_.assign(state, state + values_.size());
    for (int32_t r = 0; r < sequence.row_count; ++r) append(sequence.row_first + r);
  }

  double sum(int32_t row, size_t channel) const {
    double sum = args_.bias == nullptr ? 0.0 : args_.bias[channel];
    for (size_t j = 0; j < static_cast<size_t>(args_.taps); ++j) {
      sum += double{args_.weight[j * width_ + channel]} *
             values_[(static_cast<size_t>(row) + j) * width_ + channel];
    }
    return sum;
  }
  void save(int32_t entry, int32_t rows) const {
    const auto first = values_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rows) * width_);
    const auto count = static_cast<ptrdiff_t>((static_cast<size_t>(args_.taps) - 1) * width_);
    std::copy(first, first + count, args_.states.at(entry));
  }

 private:
  void append(int32_t row) {
    const float* x = f32_row(args_.x, row);  // [C]
    const float* before = args_.before.data == nullptr ? nullptr : f32_row(args_.before, row);
    for (size_t c = 0; c < width_; ++c) values_.push_back(before ? x[c] * before[c] : x[c]);
  }

  const CausalConvArgs& args_;
  const StateSequence& sequence_;
  const size_t width_;
  std::vector<float> values_;  // [taps - 1 + rows, C]
};

void reference(OpContext&, const CausalConvArgs& args) {
  for (const StateSequence& sequence : args.states.sequences) {
    const ConvRows rows(args, sequence);
    for (int32_t r = 0; r < sequence.row_count; ++r) {
      const int32_t t = sequence.row_first + r;
      float* out = f32_row(args.out, t);  // [C]
      const float* behind = args.behind.data == nullptr ? nullptr : f32_row(args.behind, t);
      for (int64_t c = 0; c < args.out.columns(); ++c) {
        double y = rows.sum(r, static_cast<size_t>(c));
        if (args.activation == ConvActivation::kSilu) y /= 1.0 + std::exp(-y);
        out[c] = static_cast<float>(behind == nullptr ? y : y * behind[c]);
      }
    }
    for (const StateCopy& save : sequence.saves) {
      rows.save(save.entry, save.tokens - sequence.position);
    }
    rows.save(sequence.entry, sequence.row_count);
  }
}

// Channels [first, last) of a sequence as the kernels for one instruction set take them.
template <void (*kChannels)(const ConvChannels&)>
void convolve(const CausalConvArgs& args, const StateSequence& sequence, int64_t first,
              int64_t last) {
  std::vector<ConvSave> saves;
  for (const StateCopy& save : sequence.saves) {
    saves.push_back({save.tokens - sequence.position - 1, args.states.at(save.entry) + first});
  }
  const auto at = [&](const ConstTensorView& rows) {
    return rows.data == nullptr ? nullptr : f32_row(rows, sequence.row_first) + first;
  };
  kChannels({.x = at(args.x),
             .before = at(args.before),
             .behind = at(args.behind),
             .weight = args.weight + first,
             .bias = args.bias == nullptr ? nullptr : args.bias + first,
             .state = args.states.at(sequence.entry) + first,
             .out = f32_row(args.out, sequence.row_first) + first,
             .saves = saves.data(),
             .save_count = static_cast<int64_t>(saves.size()),
             .x_stride = args.x.row_stride / 4,
             .before_stride = args.before.row_stride / 4,
             .behind_stride = args.behind.row_stride / 4,
             .out_stride = args.out.row_stride / 4,
             .stride = args.out.columns(),
             .rows = sequence.row_count,
             .channels = last - first,
             .taps = args.taps,
             .begins = sequence.position == 0,
             .silu = args.activation == ConvActivation::kSilu});
}

// A row of 512 channels takes about 0.1 us, of which a fork-join is worth some tens: sequences of
// few rows are handed out whole.
template <void (*kChannels)(const ConvChannels&)>
void run_channels(OpContext& context, const CausalConvArgs& args) {
  constexpr int64_t kChannelsOfUnit = kConvChannelsMax;
  const int64_t channels = args.out.columns();
  const int64_t units = (channels + kChannelsOfUnit - 1) / kChannelsOfUnit;
  const auto count = static_cast<int64_t>(args.states.sequences.size()) * units;
  const int64_t grain = args.out.rows() * units >= 64 ? 1 : count;
  context.device.pool().parallel_for(count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t channel = i % units * kChannelsOfUnit;
      convolve<kChannels>(args, args.states.sequences[static_cast<size_t>(i / units)], channel,
                          std::min(channels, channel + kChannelsOfUnit));
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const CausalConvArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool few_taps(const DeviceTraits& traits, const CausalConvArgs& args) {
  return any_cpu(traits, args) && args.taps <= 4;
}
bool avx512(const DeviceTraits& traits, const CausalConvArgs& args) {
  return few_taps(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const CausalConvArgs& args) {
  return few_taps(traits, args) && traits.cpu.avx2;
}

constexpr std::array kCausalConvKernels = {
    Kernel<CausalConvArgs>{"causal_conv/cpu/avx512", avx512,
                           run_channels<causal_conv_channels_avx512>},
    Kernel<CausalConvArgs>{"causal_conv/cpu/avx2", avx2, run_channels<causal_conv_channels_avx2>},
    Kernel<CausalConvArgs>{"causal_conv/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<CausalConvArgs> causal_conv_cpu_kernels() { return kCausalConvKernels; }

}  // namespace headrace
