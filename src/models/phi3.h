// Phi-3 and Phi-4 (Abdin et al., 2024): Llama with q, k, v and gate, up in one matrix each,
// LongRoPE, and in the small Phi-4 rotation of a part of each head.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec phi3_spec(const ModelConfig& config);

}  // namespace headrace
