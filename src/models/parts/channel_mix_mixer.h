// RWKV-7's network (Peng et al., 2025), a mixer as it sees the row before each:
//   x_t := x_t + (x_{t-1} - x_t) mix;   value(max(key(x_t), 0)^2)
// It keeps a sequence's last row. Every rank has all of it.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"

namespace headrace {

struct ChannelMixSpec {
  int32_t width = 0;
};

// Tensors channel_mix_lerp_k, channel_mix_key, channel_mix_value.
std::unique_ptr<Mixer> make_part(const ChannelMixSpec& spec, int64_t hidden);

}  // namespace headrace
