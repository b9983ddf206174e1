// Falcon (Almazrouei et al., 2023) with rotation: parallel layers of one LayerNorm, or of one for
// each part, plain GELU networks, few key heads (one, in the smaller), no biases.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec falcon_spec(const ModelConfig& config);
HfTensorNames falcon_hf_names();

}  // namespace headrace
