// LFM2 and LFM2.5 (Liquid AI, 2025): gated short convolutions, with grouped attention in some of
// the layers; dense networks, or mixtures of experts behind the first layers.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec lfm2_spec(const ModelConfig& config);
HfTensorNames lfm2_hf_names();

}  // namespace headrace
