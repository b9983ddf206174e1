// LFM2 and LFM2.5 (Liquid AI, 2025): gated short convolutions, with grouped attention in some of
// the layers; dense networks, or mixtures of experts behind the first layers.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec lfm2_spec(const ModelConfig& config);
HfTensorNames lfm2_hf_names();
// LFM3 (Liquid AI, 2026): norms behind parts, gates of heads, windows.
DecoderSpec lfm3_spec(const ModelConfig& config);
HfTensorNames lfm3_hf_names();

}  // namespace headrace
