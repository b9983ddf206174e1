// A gated short convolution (LFM2; Liquid AI, 2025): [B, C, x] = in(h), y = C * conv(B x) by
// channel, out(y). It keeps the last rows of B x, one fewer than it has taps. Of ranks each has
// some channels.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"

namespace headrace {

struct ShortConvSpec {
  int32_t taps = 3;
};

std::unique_ptr<Mixer> make_part(const ShortConvSpec& spec, int64_t hidden);

}  // namespace headrace
