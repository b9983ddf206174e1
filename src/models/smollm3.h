// SmolLM3 (Bakouch et al., 2025): Llama in which each fourth layer does not rotate (NoPE).
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec smollm3_spec(const ModelConfig& config);

}  // namespace headrace
