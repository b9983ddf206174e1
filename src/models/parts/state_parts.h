// What the mixers that keep states have in common.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "models/kernel_sizes.h"
#include "models/parts/layer_part.h"
#include "ops/states/causal_conv.h"

namespace headrace {

// Files have a convolution by channel as [channels, taps], causal_conv wants [taps, channels].
// `scales` [channels], or empty: what each channel is multiplied by.
inline Result<DeviceVector> load_conv_taps(LayerTensors& tensors, const std::string& name,
                                           int64_t channels, int32_t taps,
                                           std::span<const float> scales = {}) {
  HR_ASSIGN_OR_RETURN(const std::vector<float> in_file,
                      tensors.values(name + ".weight", Shape{channels, taps}));
  std::vector<float> by_tap(in_file.size());
  const auto width = static_cast<size_t>(channels), count = static_cast<size_t>(taps);
  for (size_t c = 0; c < width; ++c) {
    const float scale = scales.empty() ? 1.0f : scales[c];
    for (size_t j = 0; j < count; ++j) by_tap[j * width + c] = scale * in_file[c * count + j];
  }
  return tensors.made_vector(by_tap);
}

// What a state forgets by in a unit of time, negative: ssm_a, or `is_log`: of which it has log(-a).
inline Result<DeviceVector> load_rates(LayerTensors& tensors, const Shape& shape, bool is_log) {
  HR_ASSIGN_OR_RETURN(std::vector<float> rates, tensors.values("ssm_a", shape));
  for (float& rate : rates) rate = is_log ? -std::exp(rate) : rate;
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
