// What the mixers that keep states have in common.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "models/kernel_sizes.h"
#include "models/parts/layer_part.h"
#include "ops/states/causal_conv.h"

namespace headrace {

// Channels [first, first + count) of a tensor's.
struct ChannelRange {
  int64_t first = 0;
  int64_t count = 0;
};

// The channels of a rank, of a convolution of so many channels: files have it as [channels, taps],
// causal_conv wants [taps, channels]. `scales` [channels], or empty: what each channel is
// multiplied by.
inline Result<DeviceVector> load_conv_taps(LayerTensors& tensors, const std::string& name,
                                           const Shape& in_file, std::span<const ChannelRange> own,
                                           std::span<const float> scales = {}) {
  HR_ASSIGN_OR_RETURN(const std::vector<float> values, tensors.values(name + ".weight", in_file));
  std::vector<float> by_tap;
  const int64_t taps = in_file[1];
  for (int64_t j = 0; j < taps; ++j) {
    for (const auto& [first, count] : own) {
      for (int64_t c = first; c < first + count; ++c) {
        const float scale = scales.empty() ? 1.0f : scales[static_cast<size_t>(c)];
        by_tap.push_back(scale * values[static_cast<size_t>(c * taps + j)]);
      }
    }
  }
  return tensors.made_vector(by_tap);
}

// The same of all channels.
inline Result<DeviceVector> load_conv_taps(LayerTensors& tensors, const std::string& name,
                                           int64_t channels, int32_t taps,
                                           std::span<const float> scales = {}) {
  const ChannelRange all{.first = 0, .count = channels};
  return load_conv_taps(tensors, name, Shape{channels, taps}, std::span(&all, 1), scales);
}

// Channels of a tensor name.weight [of, taps], of those from `first` on.
struct ConvolvedChannels {
  std::string name;
  int64_t channels = 0;
  int64_t first = 0;
  int64_t of = 0;  // 0: channels
};
// The taps of convolutions side by side, [taps, channels of all], to whose sum the row itself is
// added: the last tap has it. All times `scale`.
inline Result<DeviceVector> load_residual_taps(LayerTensors& tensors,
                                               std::span<const ConvolvedChannels> parts,
                                               int32_t taps, float scale = 1.0f) {
  int64_t width = 0;
  for (const ConvolvedChannels& part : parts) width += part.channels;
  std::vector<float> by_tap(static_cast<size_t>(taps * width));
  int64_t column = 0;
  for (const ConvolvedChannels& part : parts) {
    const int64_t in_file = part.of > 0 ? part.of : part.channels;
    HR_ASSIGN_OR_RETURN(const std::vector<float> values,
                        tensors.values(part.name + ".weight", Shape{in_file, taps}));
    for (int64_t c = 0; c < part.channels; ++c, ++column) {
      for (int64_t j = 0; j < taps; ++j) {
        const float tap = values[static_cast<size_t>((part.first + c) * taps + j)];
        by_tap[static_cast<size_t>(j * width + column)] = scale * (j + 1 == taps ? tap + 1 : tap);
      }
    }
  }
  return tensors.made_vector(by_tap);
}

// What a state forgets by in a unit of time, negative: ssm_a, in some files its size, or `is_log`:
// of which it has log(-a).
inline Result<DeviceVector> load_rates(LayerTensors& tensors, const Shape& shape, bool is_log) {
  HR_ASSIGN_OR_RETURN(std::vector<float> rates, tensors.values("ssm_a", shape));
  for (float& rate : rates) rate = is_log ? -std::exp(rate) : -std::abs(rate);
  return tensors.made_vector(rates);
}

// Where a mixer keeps several states side by side, what the next one lies behind.
constexpr int64_t aligned_state_bytes(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// kUnsupported where no kernel of the device takes a convolution of so many taps.
inline Status check_taps_on(const DeviceTraits& device, int32_t taps) {
  const auto fits = [&](int64_t count) {
    CausalConvArgs args;
    args.taps = static_cast<int32_t>(count);
    return causal_conv_kernels().find(device, args) != nullptr;
  };
  if (fits(taps)) return ok_status();
  return unsupported(
      fmt::format("convolutions of {} taps are larger than kernels on a GPU take, which is {}: use "
                  "--device cpu",
                  taps, largest_that_fits(taps, fits)));
}

}  // namespace headrace
