// EXAONE 4.0 (LG AI Research, 2025): OLMo 2's norms after each part, norms of heads, and, where
// layers slide, no rotation in those that do not.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec exaone4_spec(const ModelConfig& config);
// K-EXAONE (2025): mixtures with DeepSeek's router, and norms before each part.
DecoderSpec exaone_moe_spec(const ModelConfig& config);

}  // namespace headrace
