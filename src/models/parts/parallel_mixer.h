// Attention and Mamba-2 side by side (Falcon-H1; Zuo et al., 2025): both read the layer's
// normalised rows, and the branch is the sum of what they make of them, each times a scale.
#pragma once

#include <memory>

#include "models/parts/attention_mixer.h"
#include "models/parts/mamba2_mixer.h"

namespace headrace {

struct ParallelMixerSpec {
  Mamba2Spec mamba;
  AttentionSpec attention;
  float mamba_scale = 1.0f;
  float attention_scale = 1.0f;
};

std::unique_ptr<Mixer> make_part(const ParallelMixerSpec& spec, int64_t hidden);

}  // namespace headrace
