// StableLM 2 (Bellagente et al., 2024): Llama with LayerNorms and rotation of a quarter of each
// head.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec stablelm_spec(const ModelConfig& config);

}  // namespace headrace
