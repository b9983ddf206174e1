// Granite 3 (IBM, 2024): Llama with multipliers of the embedding, the scores, the residual branches
// and the logits.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec granite_spec(const ModelConfig& config);

}  // namespace headrace
