#include "models/parts/near_keys.h"

#include "models/parts/state_parts.h"
#include "models/row_views.h"

namespace headrace {

Status NearKeys::load(LayerTensors& tensors, const Channels& keys, const Channels& values) {
  if (spec_.taps > 0) {
    const ConvolvedChannels parts[] = {{"attn_k_conv", keys.count, keys.first, keys.of},
                                       {"attn_v_conv", values.count, values.first, values.of}};
    HR_ASSIGN_OR_RETURN(taps_, load_residual_taps(tensors, parts, spec_.taps));
  }
  if (spec_.profiles == 0) return ok_status();
  HR_ASSIGN_OR_RETURN(
      const std::vector<float> profiles,
      tensors.values("attn_rel_profiles.weight", Shape{spec_.profiles, spec_.extent}));
  HR_ASSIGN_OR_RETURN(profiles_, tensors.made_vector(relative_profiles(profiles, spec_.profiles)));
  return ok_status();
}

Status NearKeys::check_device(const DeviceTraits& device) const {
  if (device.kind != DeviceKind::kCuda || !is_here()) return ok_status();
  return unsupported(
      "convolutions of keys, or biases of scores by distance, have no kernels on a GPU yet: use "
      "--device cpu");
}

void NearKeys::convolve(OpContext& context, const StateView& states, const TensorView& kept) const {
  if (spec_.taps == 0) return;
  causal_conv(context, {.x = kept,
                        .before = {},
                        .behind = {},
                        .weight = taps_.data(),
                        .bias = nullptr,
                        .taps = spec_.taps,
                        .states = states,
                        .out = kept});
}

RelativeBias NearKeys::bias(const TensorView& rows, int64_t first, int64_t count) const {
  if (spec_.profiles == 0) return {};
  return {.count = spec_.profiles,
          .extent = spec_.extent,
          .numbers = column_range(rows, first, count),
          .profiles = profiles_.data()};
}

}  // namespace headrace
