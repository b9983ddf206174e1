// Rotary frequencies of a configuration, with the published ways to stretch them over longer texts.
#pragma once

#include "models/decoder_spec.h"

namespace headrace {

// Of layers that do not slide, scaled as the configuration says.
RopeTable rope_table(const ModelConfig& config);
// YaRN's factor of attention for a stretch of `factor` (Peng et al., 2023; `mscale` 1).
double yarn_mscale(double factor, double mscale);
// Of layers that slide, where a configuration has a base and a size of theirs: unscaled.
RopeTable sliding_rope_table(const ModelConfig& config);
// Unscaled, from another base.
RopeTable plain_rope_table(double theta, int32_t rope_dim);

}  // namespace headrace
